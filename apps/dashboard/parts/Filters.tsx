import type { ComponentChildren, JSX } from 'preact'
import { useId, useState } from 'preact/hooks'
import { Fold } from './Fold.tsx'
import { Choices, type Options } from './ui.tsx'

type Filter = readonly [name: string, title: string, input: Options | JSX.IntrinsicElements['input']]

/**
 * A filter of a list: a choice among options, or a text.
 *
 * A field shows the filter's value in the link, or what the user has typed since. So the fields change with the link, for example
 * when the user goes back in the browser.
 */
export function Filters(props: {
  filters: readonly Filter[]
  /** Current values by the filters' names. Default: the values of the filters' inputs. */
  values?: Record<string, string>
  /** Reasons why the gateway rejects a filter, by the filter's name. */
  problems?: ReadonlyMap<string, string> | undefined
  send: (values: Record<string, string>) => void
  children?: ComponentChildren
}) {
  const { filters, values, problems, send, children } = props
  const id = useId()
  const link = JSON.stringify(values)
  const [typed, setTyped] = useState({ link, texts: {} as Record<string, string> })
  const texts = typed.link === link ? typed.texts : {}
  const type = (name: string, text: string) => setTyped({ link, texts: { ...texts, [name]: text } })
  return (
    <Fold title="Filters">
      <form
        class="line filters"
        noValidate
        onSubmit={(event) => {
          event.preventDefault()
          const fields = [...new FormData(event.currentTarget)]
          // Show the link's values again, so that the fields also change when the user returns to this link.
          setTyped({ link, texts: {} })
          send(Object.fromEntries(fields.map(([name, value]) => [name, String(value).trim()])))
        }}
      >
        {filters.map(([name, title, input]) => {
          const given = Array.isArray(input) ? '' : String((input as { value?: unknown }).value ?? '')
          const value = texts[name] ?? values?.[name] ?? given
          const problem = problems?.get(name)
          const about =
            problem === undefined ? {} : { 'aria-describedby': `${id}-${name}`, 'aria-invalid': true }
          return (
            // biome-ignore lint/a11y/noLabelWithoutControl: the label contains either the select or the input
            <label key={name}>
              <span class="note">{title}</span>
              {Array.isArray(input) ? (
                <select
                  name={name}
                  value={value}
                  {...about}
                  onChange={(event) => type(name, event.currentTarget.value)}
                >
                  <Choices of={[['', 'any'], ...input]} />
                </select>
              ) : (
                <input
                  name={name}
                  spellcheck={false}
                  autocomplete="off"
                  {...(input as JSX.IntrinsicElements['input'])}
                  {...about}
                  value={value}
                  onInput={(event) => type(name, event.currentTarget.value)}
                />
              )}
              {problem !== undefined && (
                <span id={`${id}-${name}`} class="problem">
                  {problem}
                </span>
              )}
            </label>
          )
        })}
        <button type="submit">Search</button>
        {children}
      </form>
    </Fold>
  )
}
