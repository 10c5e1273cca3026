import type { ComponentChildren } from 'preact'

/** One number of a page's `dl.figures`, and what it says. */
export function Figure(props: { title: string; value: string; note: ComponentChildren; unit?: string }) {
  const { title, value, note, unit } = props
  return (
    <div class="figure">
      <dt>{title}</dt>
      <dd>
        <span class="value">
          {value}
          {unit !== undefined && <small> {unit}</small>}
        </span>
        <span class="note">{note}</span>
      </dd>
    </div>
  )
}
