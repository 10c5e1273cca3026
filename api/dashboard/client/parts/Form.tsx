import type { ComponentChildren } from 'preact'
import { useId } from 'preact/hooks'
import type { FieldState, FormState } from '../useForm.ts'

/** A form, its button, and what became of it. */
export function Form<Name extends string>(props: {
  form: FormState<Name>
  /** What the button says. */
  action: string
  isDanger?: boolean
  cancel?: () => void
  children?: ComponentChildren
}) {
  const { form, action, isDanger = false, cancel, children } = props
  return (
    <form ref={form.ref} class="form" noValidate onSubmit={form.submit}>
      {children}
      <Refusal form={form} />
      <div class="buttons">
        <button type="submit" class={isDanger ? 'danger' : undefined} aria-disabled={form.isBusy}>
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

function Refusal<Name extends string>({ form: { refused, ref } }: { form: FormState<Name> }) {
  if (refused === undefined) return null
  // A refusal about a field is shown at that field.
  const others = [...refused.fields].filter(([field]) => ref.current?.elements.namedItem(field) == null)
  return (
    <div class="refusal" role="alert">
      <p>
        <b>{refused.title}.</b> {others.map(([field, message]) => `${field}: ${message}. `)}
        {refused.text}
      </p>
      <p class="note code">{refused.code}</p>
    </div>
  )
}

type FieldProps = { label: string; field: FieldState; note?: ComponentChildren }

function Frame(
  props: FieldProps & {
    children: (attributes: {
      id: string
      name: string
      'aria-describedby': string | undefined
      'aria-invalid': boolean
    }) => ComponentChildren
  },
) {
  const { label, field, note, children } = props
  const id = useId()
  const described = [field.problem && `${id}-problem`, note && `${id}-note`].filter(Boolean).join(' ')
  return (
    <div class="field">
      <label for={id}>{label}</label>
      {children({
        id,
        name: field.name,
        'aria-describedby': described || undefined,
        'aria-invalid': field.problem !== undefined,
      })}
      {field.problem !== undefined && (
        <p id={`${id}-problem`} class="problem">
          {field.problem}
        </p>
      )}
      {note !== undefined && (
        <p id={`${id}-note`} class="note">
          {note}
        </p>
      )}
    </div>
  )
}

export function TextField({
  placeholder,
  inputMode,
  ...props
}: FieldProps & { placeholder?: string; inputMode?: 'url' | 'decimal' }) {
  return (
    <Frame {...props}>
      {(attributes) => (
        <input
          {...attributes}
          value={props.field.value}
          onInput={(event) => props.field.set(event.currentTarget.value)}
          autocomplete="off"
          spellcheck={false}
          placeholder={placeholder}
          inputMode={inputMode}
        />
      )}
    </Frame>
  )
}

export function SelectField({
  options,
  ...props
}: FieldProps & { options: readonly (readonly [value: string, title: string])[] }) {
  return (
    <Frame {...props}>
      {(attributes) => (
        <select
          {...attributes}
          value={props.field.value}
          onChange={(event) => props.field.set(event.currentTarget.value)}
        >
          {options.map(([value, title]) => (
            <option key={value} value={value}>
              {title}
            </option>
          ))}
        </select>
      )}
    </Frame>
  )
}

/** Several of a few; the field's value are those that are chosen, with spaces between, in the order of `options`. */
export function ChecksField({
  label,
  field,
  note,
  options,
}: FieldProps & { options: readonly (readonly [value: string, title: string])[] }) {
  const id = useId()
  const chosen = field.value.split(' ')
  const toggle = (value: string, isChosen: boolean) => {
    const next = [...chosen.filter((one) => one !== value && one !== ''), ...(isChosen ? [value] : [])]
    field.set(next.join(' '))
  }
  return (
    <fieldset class="field checks" aria-describedby={field.problem && `${id}-problem`}>
      <legend>{label}</legend>
      {options.map(([value, title]) => (
        <label key={value}>
          <input
            type="checkbox"
            name={field.name}
            checked={chosen.includes(value)}
            aria-invalid={field.problem !== undefined}
            onChange={(event) => toggle(value, event.currentTarget.checked)}
          />
          {title}
        </label>
      ))}
      {field.problem !== undefined && (
        <p id={`${id}-problem`} class="problem">
          {field.problem}
        </p>
      )}
      {note !== undefined && <p class="note">{note}</p>}
    </fieldset>
  )
}
