import type { ComponentChildren } from 'preact'
import { useEffect, useRef, useState } from 'preact/hooks'
import type UPlot from 'uplot'
import { dataOf, drawPlot, type PlotShape, plotHeight } from './drawPlot.ts'
import { type Column, Table } from './Table.tsx'

type PlotProps<Point, Row> = PlotShape<Point> & {
  title: string
  /** Text for screen readers, in place of the plot. */
  label: string
  /** Describes the point under the pointer, or the last point if the pointer is elsewhere. */
  readout: (point: Point) => ComponentChildren
  /** The plot's data as a table. */
  rows: readonly Row[]
  columns: readonly Column<Row>[]
}

/** A plot. It is drawn again for new data, another width or another color scheme. */
export function Plot<Point, Row>(props: PlotProps<Point, Row>) {
  const { title, label, points, timeOf, series, readout, rows, columns } = props
  const holder = useRef<HTMLDivElement>(null)
  const plot = useRef<UPlot | null>(null)
  const latest = useRef(props)
  latest.current = props
  const [pointed, setPointed] = useState<number | null>(null)
  // New values update the existing plot. Only another shape, series or interval requires a new plot.
  const [first, second] = points.slice(0, 2).map(timeOf)
  const form = `${props.shape} ${series.map(({ color }) => color)} ${(second ?? 0) - (first ?? 0)}`

  useEffect(() => {
    const element = holder.current
    if (element === null || form === '') return
    const make = () => {
      plot.current?.destroy()
      plot.current = drawPlot(element, latest.current, setPointed)
    }
    make()
    const resized = new ResizeObserver(() => {
      plot.current?.setSize({ width: element.clientWidth, height: plotHeight })
    })
    resized.observe(element)
    const scheme = matchMedia('(prefers-color-scheme: dark)')
    scheme.addEventListener('change', make)
    return () => {
      resized.disconnect()
      scheme.removeEventListener('change', make)
      plot.current?.destroy()
      plot.current = null
    }
  }, [form])

  useEffect(() => {
    plot.current?.setData(dataOf(latest.current))
  }, [points])

  const shown = points[pointed ?? -1] ?? points.at(-1)
  return (
    <figure>
      <figcaption class="line note">
        <span class="line legend">
          {series.length > 1 &&
            series.map(({ title, color }) => (
              <span key={title}>
                <i style={{ background: `var(${color})` }} />
                {title}
              </span>
            ))}
        </span>
        <span class="readout">{shown !== undefined && readout(shown)}</span>
      </figcaption>
      <div ref={holder} class="canvas" role="img" aria-label={label} />
      <details>
        <summary>As a table</summary>
        <Table label={title} rows={rows} columns={columns} keyOf={(_, at) => at} />
      </details>
    </figure>
  )
}
