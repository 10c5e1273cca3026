import type { ComponentChildren } from 'preact'
import { useEffect, useRef, useState } from 'preact/hooks'
import UPlot from 'uplot'

export type PlotSeries = {
  title: string
  /** A custom property of the style sheet, such as `--good`. */
  color: string
  /** For pixels only: what is read stands in `readout` and in the table. */
  values: number[]
}

type PlotProps = {
  /** What it shows, for who can't see it. */
  label: string
  /** Unix seconds, ascending. */
  times: number[]
  /** Bars are drawn over each other, the first one behind. */
  series: PlotSeries[]
  shape: 'bars' | 'points'
  writeValue: (value: number) => string
  /** What is shown of a point that is pointed at; of the last one unless told. */
  readout: (index: number) => ComponentChildren
  /** The same as a table. */
  table: ComponentChildren
  /** Values below are drawn as this. */
  minimumTop?: number
}

const height = 220

/** A uPlot that follows its data, its container's width and the colour scheme. */
export function Plot(props: PlotProps) {
  const { label, times, series, readout, table } = props
  const holder = useRef<HTMLDivElement>(null)
  const plot = useRef<UPlot | null>(null)
  const [pointed, setPointed] = useState<number | null>(null)
  const latest = useRef(props)
  latest.current = props
  const shape = `${props.shape} ${series.length}`

  // biome-ignore lint/correctness/useExhaustiveDependencies: a plot is made anew only where its form changes
  useEffect(() => {
    const element = holder.current
    if (!element) return
    const make = () => {
      plot.current?.destroy()
      plot.current = draw(element, latest.current, setPointed)
    }
    make()
    const resized = new ResizeObserver(() => plot.current?.setSize({ width: element.clientWidth, height }))
    resized.observe(element)
    const scheme = matchMedia('(prefers-color-scheme: dark)')
    scheme.addEventListener('change', make)
    return () => {
      resized.disconnect()
      scheme.removeEventListener('change', make)
      plot.current?.destroy()
    }
  }, [shape])

  useEffect(() => {
    plot.current?.setData([times, ...series.map(({ values }) => values)])
  }, [times, series])

  const shown = pointed !== null && pointed < times.length ? pointed : times.length - 1
  return (
    <figure class="plot">
      <figcaption>
        <span class="legend">
          {series.length > 1 &&
            series.map(({ title, color }) => (
              <span key={title}>
                <i style={{ background: `var(${color})` }} />
                {title}
              </span>
            ))}
        </span>
        <span class="readout">{readout(shown)}</span>
      </figcaption>
      <div ref={holder} class="canvas" role="img" aria-label={label} />
      <details>
        <summary>As a table</summary>
        {table}
      </details>
    </figure>
  )
}

function draw(element: HTMLElement, props: PlotProps, onPoint: (index: number | null) => void): UPlot {
  const { times, series, shape, writeValue, minimumTop = 0 } = props
  const style = getComputedStyle(element)
  const color = (name: string) => style.getPropertyValue(name).trim()
  const axis: UPlot.Axis = {
    stroke: color('--quiet'),
    grid: { stroke: color('--line'), width: 1 },
    ticks: { show: false },
    font: `12px ${style.fontFamily}`,
  }
  const bars = UPlot.paths.bars?.({ size: [0.72, 36], radius: 0.12 })
  const options: UPlot.Options = {
    width: element.clientWidth,
    height,
    // What is summed by UTC days must not be labelled by local ones.
    ...(shape === 'bars' && {
      tzDate: (seconds: number) => UPlot.tzDate(new Date(seconds * 1000), 'Etc/UTC'),
    }),
    legend: { show: false },
    padding: [12, 8, 0, 0],
    cursor: { y: false, points: { show: shape === 'points' }, drag: { x: false, y: false } },
    scales: {
      x: { range: (_, from, to) => padded(from, to, shape, latestStep(times)) },
      y: { range: (_, __, top) => [0, Math.max(top, minimumTop) * 1.08 || 1] },
    },
    axes: [
      { ...axis, grid: { show: false } },
      { ...axis, size: 64, values: (_, values) => values.map((value) => writeValue(value)) },
    ],
    series: [
      {},
      ...series.map(
        ({ title, color: name }): UPlot.Series => ({
          label: title,
          stroke: color(name),
          ...(shape === 'bars'
            ? { fill: color(name), width: 0, ...(bars && { paths: bars }), points: { show: false } }
            : { width: 1.5, points: { show: true, size: 5, fill: color(name) } }),
        }),
      ),
    ],
    hooks: { setCursor: [(self) => onPoint(self.cursor.idx ?? null)] },
  }
  return new UPlot(options, [times, ...series.map(({ values }) => values)], element)
}

function latestStep(times: number[]): number {
  return (times.at(-1) ?? 0) - (times.at(-2) ?? 0)
}

/** Room for the outer bars, and for a single point. */
function padded(from: number, to: number, shape: PlotProps['shape'], step: number): [number, number] {
  const room = shape === 'bars' ? step * 0.6 : Math.max((to - from) * 0.02, 1)
  return [from - room, to + room]
}
