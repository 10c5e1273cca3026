import type { ComponentChildren } from 'preact'
import { useState } from 'preact/hooks'

/**
 * The place of a cell on a narrow screen, where a row has two lines: `first` and `end` begin and end the first line, `second` cells are
 * on the second line, and `more` cells appear when the row is opened.
 */
export type Place = 'first' | 'end' | 'second' | 'more'

/** A column: its title, a row's cell, its alignment, and its place on a narrow screen. */
export type Column<Row> = readonly [
  title: string,
  cell: (row: Row) => ComponentChildren,
  kind?: 'number' | 'wrap' | 'actions' | undefined,
  place?: Place,
]

/** Maximum number of columns on the second line, not counting those that specify their place. */
const mostSecond = 3

/**
 * Returns the places of a table's columns. By default the first column begins the first line, and the first amount, or else the first
 * number, ends it.
 */
export function placesOf(columns: readonly Column<never>[]): (Place | 'actions')[] {
  const hasEnd = columns.some(([, , , place]) => place === 'end')
  const isFree = ([, , kind, place]: Column<never>, at: number) => at > 0 && kind === 'number' && !place
  const amount = columns.findIndex((column, at) => isFree(column, at) && column[0].includes('USDC'))
  const end = hasEnd ? -1 : amount >= 0 ? amount : columns.findIndex(isFree)
  let seconds = columns.filter(([, , , place]) => place === 'second').length
  return columns.map(([, , kind, place], at) => {
    if (kind === 'actions') return 'actions'
    if (place) return place
    if (at === 0) return 'first'
    if (at === end) return 'end'
    return kind !== 'number' && seconds++ < mostSecond ? 'second' : 'more'
  })
}

type ListProps<Row> = {
  rows: readonly Row[]
  keyOf: (row: Row, at: number) => string | number
  /** Text for a list without rows. */
  none?: ComponentChildren
  /** Shows more rows, if there are any. */
  more?: (() => void) | undefined
}

type TableProps<Row> = ListProps<Row> & {
  label: string
  columns: readonly Column<Row>[]
  /** Whether a row is shown in gray because it is no longer active. */
  isOff?: ((row: Row) => boolean) | undefined
}

/**
 * A table that scrolls separately from the page, also by keyboard. On a narrow screen each row has two lines, and a button that
 * shows the other cells; `data-title` names these cells.
 */
export function Table<Row>({ label, columns, rows, keyOf, isOff, none, more }: TableProps<Row>) {
  const places = placesOf(columns as readonly Column<never>[])
  const isFolded = places.includes('more')
  const table = (
    // biome-ignore lint/a11y/noNoninteractiveTabindex: the keyboard must be able to scroll this
    <section class="scroll" aria-label={label} tabIndex={0}>
      <table class={columns.length > 2 ? 'lines' : undefined}>
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
            <TableRow
              key={keyOf(row, at)}
              row={row}
              columns={columns}
              places={places}
              isOff={isOff?.(row)}
              isFolded={isFolded}
            />
          ))}
        </tbody>
      </table>
    </section>
  )
  return framed(table, rows.length === 0 && none, more)
}

type TableRowProps<Row> = {
  row: Row
  columns: readonly Column<Row>[]
  places: readonly (Place | 'actions')[]
  isOff: boolean | undefined
  /** Whether some cells appear only when the row is opened. */
  isFolded: boolean
}

function TableRow<Row>({ row, columns, places, isOff, isFolded }: TableRowProps<Row>) {
  const [isOpen, setIsOpen] = useState(false)
  const name = [isOff && 'off', isOpen && 'open'].filter(Boolean).join(' ')
  return (
    <tr class={name || undefined}>
      {columns.map(([title, cell, kind], at) => (
        <td
          key={title}
          class={[kind, `at-${places[at]}`].filter(Boolean).join(' ')}
          data-title={(at > 0 && title) || undefined}
        >
          {cell(row)}
        </td>
      ))}
      {isFolded && (
        <td class="toggle">
          <button
            type="button"
            class="quiet small"
            aria-expanded={isOpen}
            aria-label={isOpen ? 'Show less' : 'Show more'}
            onClick={() => setIsOpen(!isOpen)}
          >
            {isOpen ? '–' : '+'}
          </button>
        </td>
      )}
    </tr>
  )
}

/** A list without columns, with one item for each row. */
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
