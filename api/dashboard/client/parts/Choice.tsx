import { useId } from 'preact/hooks'

/** A choice of one among a few, side by side. */
export function Choice<Value extends string>(props: {
  label: string
  options: readonly (readonly [value: Value, title: string])[]
  value: Value
  choose: (value: Value) => void
}) {
  const { label, options, value, choose } = props
  const name = useId()
  return (
    <fieldset class="choice">
      <legend class="unseen">{label}</legend>
      {options.map(([one, title]) => (
        <label key={one}>
          <input type="radio" name={name} checked={one === value} onChange={() => choose(one)} />
          <span>{title}</span>
        </label>
      ))}
    </fieldset>
  )
}
