import { useEffect, useRef, useState } from 'preact/hooks'
import { explainRefusal, type Refused } from './explain.ts'
import { GatewayError } from './gateway.ts'

export type Values<Name extends string> = Record<Name, string>

export type FieldState = {
  name: string
  value: string
  set: (value: string) => void
  problem: string | undefined
}

export type FormState<Name extends string> = {
  values: Values<Name>
  field: (name: Name) => FieldState
  refused: Refused | undefined
  isBusy: boolean
  ref: { current: HTMLFormElement | null }
  submit: (event: SubmitEvent) => void
}

/**
 * A form whose fields hold what the user typed, and else `initial`, also when that changes underneath. The gateway is the
 * only judge of what is right: its answer is shown, and the focus goes to the first field that it is about.
 *
 * @param initial by the fields' names in the request
 * @param send gets all values, and those alone that the user changed
 */
export function useForm<Name extends string>(
  initial: Values<Name>,
  send: (values: Values<Name>, changed: Partial<Values<Name>>) => Promise<void>,
): FormState<Name> {
  const [typed, setTyped] = useState<Partial<Values<Name>>>({})
  const [refused, setRefused] = useState<Refused>()
  const [isBusy, setIsBusy] = useState(false)
  const ref = useRef<HTMLFormElement>(null)
  const values = { ...initial, ...typed }

  useEffect(() => {
    if (refused === undefined) return
    const wrong = ref.current?.querySelector<HTMLElement>('[aria-invalid=true]')
    wrong?.focus()
  }, [refused])

  async function submit() {
    const changed = Object.fromEntries(
      Object.entries<string>(values).filter(([name, value]) => value !== initial[name as Name]),
    ) as Partial<Values<Name>>
    setIsBusy(true)
    setRefused(undefined)
    try {
      await send(values, changed)
    } catch (error) {
      if (!(error instanceof GatewayError)) throw error
      setRefused(explainRefusal(error))
    } finally {
      setIsBusy(false)
    }
  }

  return {
    values,
    field: (name) => ({
      name,
      value: values[name],
      set: (value) => setTyped((now) => ({ ...now, [name]: value })),
      problem: refused?.fields.get(name),
    }),
    refused,
    isBusy,
    ref,
    submit: (event) => {
      event.preventDefault()
      if (!isBusy) void submit()
    },
  }
}
