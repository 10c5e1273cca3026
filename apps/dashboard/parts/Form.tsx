import type { ComponentChildren } from 'preact'
import { useEffect, useId, useRef, useState } from 'preact/hooks'
import { explainRefusal, type Refused } from '../display/explain.ts'
import { GatewayError } from '../gateway/gateway.ts'
import { Choices, type Options } from './bits.tsx'

/** A field of a form: a text, or one or several of `options`. */
export type Field = {
  /** Its name in the request; `a.b` is the member `b` of `a`. */
  name: string
  label: string
  /** The text until the user types. Spaces separate several values. */
  value?: string
  note?: ComponentChildren
  placeholder?: string
  isSecret?: boolean
  inputMode?: 'url' | 'decimal'
  options?: Options
  /** Several options can be chosen; in the request they are an array. */
  isMany?: boolean
  /** Converts the text for the request; default: the text itself. */
  parse?: (text: string) => unknown
}

/** The fields of a form in the request's structure. */
export type Body = Record<string, unknown>

/**
 * A form whose fields hold what the user typed, or else their `value`, which may change meanwhile. Only the gateway
 * judges values: its answer is shown, and the focus goes to the first field that it is about.
 */
export function Form(props: {
  fields?: readonly Field[]
  /** The button's text. */
  action: string
  isDanger?: boolean | undefined
  cancel?: (() => void) | undefined
  /** Gets all values, and apart those that the user changed. */
  send: (body: Body, changed: Body) => Promise<unknown>
  /** Before the fields. */
  children?: ComponentChildren
}) {
  const { fields = [], action, isDanger = false, cancel, send, children } = props
  const [typed, setTyped] = useState<Record<string, string>>({})
  const [refused, setRefused] = useState<Refused>()
  const [isBusy, setIsBusy] = useState(false)
  const form = useRef<HTMLFormElement>(null)
  const textOf = ({ name, value = '' }: Field) => typed[name] ?? value

  useEffect(() => {
    if (refused === undefined) return
    form.current?.querySelector<HTMLElement>('[aria-invalid=true]')?.focus()
  }, [refused])

  async function submit() {
    setIsBusy(true)
    setRefused(undefined)
    try {
      const changed = fields.filter((field) => textOf(field) !== (field.value ?? ''))
      await send(bodyOf(fields, textOf), bodyOf(changed, textOf))
    } catch (error) {
      if (!(error instanceof GatewayError)) throw error
      setRefused(explainRefusal(error))
    } finally {
      setIsBusy(false)
    }
  }

  return (
    <form
      ref={form}
      class="form"
      noValidate
      onSubmit={(event) => {
        event.preventDefault()
        if (!isBusy) void submit()
      }}
    >
      {children}
      {fields.map((field) => (
        <FormField
          key={field.name}
          field={field}
          value={textOf(field)}
          set={(value) => setTyped((now) => ({ ...now, [field.name]: value }))}
          problem={refused?.fields.get(field.name)}
        />
      ))}
      {refused && <Refusal refused={refused} names={fields.map(({ name }) => name)} />}
      <div class="buttons">
        <button type="submit" class={isDanger ? 'danger' : undefined} aria-disabled={isBusy}>
          {action}
        </button>
        {cancel && (
          <button type="button" class="quiet" onClick={cancel}>
            Cancel
          </button>
        )}
      </div>
    </form>
  )
}

function bodyOf(fields: readonly Field[], textOf: (field: Field) => string): Body {
  const entries = fields.map((field): [name: string, value: unknown] => {
    const [name = '', member] = field.name.split('.')
    const text = textOf(field).trim()
    const value = field.isMany ? text.split(' ').filter(Boolean) : field.parse ? field.parse(text) : text
    return [name, member === undefined ? value : { [member]: value }]
  })
  return Object.fromEntries(entries)
}

function Refusal({ refused, names }: { refused: Refused; names: string[] }) {
  // A refusal about a field is shown at that field.
  const others = [...refused.fields].filter(([field]) => !names.includes(field))
  return (
    <div class="box bad" role="alert">
      <p>
        <b>{refused.title}.</b> {others.map(([field, message]) => `${field}: ${message}. `)}
        {refused.text}
      </p>
      <p class="note code">{refused.code}</p>
    </div>
  )
}

function FormField(props: {
  field: Field
  value: string
  set: (value: string) => void
  problem: string | undefined
}) {
  const { field, value, set, problem } = props
  const { name, label, note, options, isMany = false, placeholder, isSecret = false, inputMode } = field
  const id = useId()
  const describedBy = [problem && `${id}-problem`, note && `${id}-note`].filter(Boolean).join(' ')
  const about = { 'aria-describedby': describedBy || undefined }
  const isWrong = problem !== undefined
  const Frame = isMany ? 'fieldset' : 'div'
  return (
    <Frame class="field" {...(isMany && about)}>
      {isMany ? <legend>{label}</legend> : <label for={id}>{label}</label>}
      {isMany ? (
        <Checks name={name} options={options ?? []} value={value} set={set} isWrong={isWrong} />
      ) : options ? (
        <select
          id={id}
          name={name}
          value={value}
          {...about}
          aria-invalid={isWrong}
          onChange={(event) => set(event.currentTarget.value)}
        >
          <Choices of={options} />
        </select>
      ) : (
        <input
          id={id}
          name={name}
          value={value}
          placeholder={placeholder}
          inputMode={inputMode}
          {...about}
          {...(isSecret ? ({ type: 'password' } as const) : {})}
          aria-invalid={isWrong}
          onInput={(event) => set(event.currentTarget.value)}
          autocomplete="off"
          spellcheck={false}
        />
      )}
      {isWrong && (
        <p id={`${id}-problem`} class="problem">
          {problem}
        </p>
      )}
      {note !== undefined && (
        <p id={`${id}-note`} class="note">
          {note}
        </p>
      )}
    </Frame>
  )
}

function Checks(props: {
  name: string
  options: Options
  value: string
  set: (value: string) => void
  isWrong: boolean
}) {
  const { name, options, value, set, isWrong } = props
  const chosen = value.split(' ').filter(Boolean)
  return options.map(([one, title]) => (
    <label key={one}>
      <input
        type="checkbox"
        name={name}
        checked={chosen.includes(one)}
        aria-invalid={isWrong}
        onChange={({ currentTarget: { checked } }) =>
          set([...chosen.filter((other) => other !== one), ...(checked ? [one] : [])].join(' '))
        }
      />
      {title}
    </label>
  ))
}
