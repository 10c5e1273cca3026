import type { ComponentChildren } from 'preact'
import { useEffect, useId, useRef, useState } from 'preact/hooks'
import { explainRefusal, type Refused } from '../display/explain.ts'
import { readDecimal, writeInput } from '../display/locale.ts'
import { GatewayError } from '../gateway/gateway.ts'
import { Choices, type Options } from './ui.tsx'

/** A field of a form: a text, or a choice of one or several of `options`. */
export type Field = {
  /** Name of the field in the request; `a.b` is the member `b` of `a`. */
  name: string
  label: string
  /** The text that the field shows before the user types. If there are several values, spaces separate them. */
  value?: string
  note?: ComponentChildren
  placeholder?: string
  isSecret?: boolean
  inputMode?: 'url' | 'decimal'
  options?: Options
  /** Whether several options can be chosen; the request then has an array. */
  isMany?: boolean
  /** Converts the text for the request. Default: sends the text itself. */
  parse?: (text: string) => unknown
}

/** The fields of a form, structured as in the request. */
export type Body = Record<string, unknown>

/**
 * A form. Each field shows what the user typed, or else its `value`, which may change while the form is open. Only the gateway
 * validates the values. The form shows the gateway's message, and focuses the first field to which it refers.
 */
export function Form(props: {
  fields?: readonly Field[]
  /** The text of the button. */
  action: string
  isDanger?: boolean | undefined
  cancel?: (() => void) | undefined
  /** Receives all values, and separately the values that the user changed. */
  send: (body: Body, changed: Body) => Promise<unknown>
  /** Content before the fields. */
  children?: ComponentChildren
}) {
  const { fields: given = [], action, isDanger = false, cancel, send, children } = props
  const fields = given.map((field) => (field.inputMode === 'decimal' ? asTyped(field) : field))
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

/** Returns a field for a decimal, which it shows in the format of the browser's language. The user may type a point or a comma. */
function asTyped(field: Field): Field {
  const { name, value = '', placeholder, parse } = field
  return {
    ...field,
    value: writeInput(value),
    ...(placeholder !== undefined && { placeholder: writeInput(placeholder) }),
    parse(text) {
      const decimal = readDecimal(text)
      if (decimal === null) {
        const plain = text.replace(/[.,]/g, '')
        const message = `“${text}” is ambiguous: write ${plain}, or ${writeInput(`${text.replace(/[.,]/, '.')}0`)}`
        throw new GatewayError(422, 'invalid_field', message, [{ field: name, message }])
      }
      return parse ? parse(decimal) : decimal
    },
  }
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
  // The messages about fields of this form are shown at the fields. Show only the other messages here.
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
