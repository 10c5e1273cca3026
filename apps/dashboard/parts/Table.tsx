import type { ComponentChildren, JSX } from 'preact'
import { Choices, type Options } from './bits.tsx'

/** A column: its title, a row's cell, and how that is set. */
export type Column<Row> = readonly [
  title: string,
  cell: (row: Row) => ComponentChildren,
  kind?: 'number' | 'wrap' | 'actions',
]

type ListProps<Row> = {
  rows: readonly Row[]
  keyOf: (row: Row, at: number) => string | number
  /** What is said where there are no rows. */
  none?: ComponentChildren
  /** Shows more of them, where there are any. */
  more?: (() => void) | undefined
}

type TableProps<Row> = ListProps<Row> & {
  label: string
  columns: readonly Column<Row>[]
  /** What is no longer in force is grey. */
  isOff?: ((row: Row) => boolean) | undefined
}

/**
 * A table that scrolls by itself on a narrow screen, also with the keyboard. With more than two columns each row stands as
 * a card there, so that its buttons are seen; `data-title` names a cell in it.
 */
export function Table<Row>({ label, columns, rows, keyOf, isOff, none, more }: TableProps<Row>) {
  const table = (
    // biome-ignore lint/a11y/noNoninteractiveTabindex: what scrolls must be reachable
    <section class="scroll" aria-label={label} tabIndex={0}>
      <table class={columns.length > 2 ? 'stacked' : undefined}>
        <thead>
          <tr>
            {columns.map(([title, , kind]) => (
              <th key={title} scope="col" class={kind}>
                {title}
              </th>
            ))}
          </tr>
        </thead>
        <tbody>
          {rows.map((row, at) => (
            <tr key={keyOf(row, at)} class={isOff?.(row) ? 'off' : undefined}>
              {columns.map(([title, cell, kind], at) => (
                <td key={title} class={kind} data-title={(at > 0 && title) || undefined}>
                  {cell(row)}
                </td>
              ))}
            </tr>
          ))}
        </tbody>
      </table>
    </section>
  )
  return framed(table, rows.length === 0 && none, more)
}

/** What is no table: an item for each row. */
export function Rows<Row>(props: ListProps<Row> & { children: (row: Row) => ComponentChildren }) {
  const { rows, keyOf, none, more, children } = props
  const list = (
    <ul class="rows">
      {rows.map((row, at) => (
        <li key={keyOf(row, at)}>{children(row)}</li>
      ))}
    </ul>
  )
  return framed(list, rows.length === 0 && none, more)
}

function framed(list: ComponentChildren, none: ComponentChildren, more: (() => void) | undefined) {
  return (
    <>
      {none ? <p class="note">{none}</p> : list}
      {more && (
        <button type="button" class="quiet" onClick={more}>
          Show older ones
        </button>
      )}
    </>
  )
}

type Filter = readonly [name: string, title: string, input: Options | JSX.IntrinsicElements['input']]

/** What narrows a list: a choice among options, or a text. */
export function Filters(props: {
  filters: readonly Filter[]
  send: (values: Record<string, string>) => void
  children?: ComponentChildren
}) {
  const { filters, send, children } = props
  return (
    <form
      class="line filters"
      onSubmit={(event) => {
        event.preventDefault()
        const values = [...new FormData(event.currentTarget)]
        send(Object.fromEntries(values.map(([name, value]) => [name, String(value).trim()])))
      }}
    >
      {filters.map(([name, title, input]) => (
        // biome-ignore lint/a11y/noLabelWithoutControl: one of both is in it
        <label key={name}>
          <span class="note">{title}</span>
          {Array.isArray(input) ? (
            <select name={name}>
              <Choices of={[['', 'any'], ...input]} />
            </select>
          ) : (
            <input name={name} spellcheck={false} autocomplete="off" {...input} />
          )}
        </label>
      ))}
      <button type="submit">Search</button>
      {children}
    </form>
  )
}
