import UPlot from 'uplot'
import { createDateFormat } from '../display/locale.ts'
import { readZone } from '../display/zone.ts'

export type PlotSeries<Point> = {
  title: string
  /** Name of a custom property in the style sheet, such as `--good`. */
  color: string
  /** Returns a float, for drawing only. The exact values are next to the plot and in its table. */
  of: (point: Point) => number
}

export type PlotShape<Point> = {
  /**
   * How the series are drawn. `bars`: a bar for each UTC interval; the bars of later series cover the bars of earlier series. `points`: a point
at each local time.
   */
  shape: 'bars' | 'points'
  /** In chronological order. */
  points: readonly Point[]
  /** Unix milliseconds. */
  timeOf: (point: Point) => number
  series: PlotSeries<Point>[]
  writeValue: (value: number) => string
}

export const plotHeight = 200

/** Returns the times in Unix seconds, followed by the values of each series. */
export function dataOf<Point>({ points, timeOf, series }: PlotShape<Point>): [number[], ...number[][]] {
  return [points.map((point) => timeOf(point) / 1000), ...series.map(({ of }) => points.map(of))]
}

/** Draws into an element, in the colors that the style sheet currently defines for it. */
export function drawPlot<Point>(
  element: HTMLElement,
  plot: PlotShape<Point>,
  onPoint: (index: number | null) => void,
): UPlot {
  const { shape, series, writeValue } = plot
  const data = dataOf(plot)
  const [times] = data
  const isBars = shape === 'bars'
  const axis: UPlot.Axis = {
    stroke: readColor(element, '--quiet'),
    grid: { stroke: readColor(element, '--line'), width: 1 },
    ticks: { show: false },
    font: `12px ${getComputedStyle(element).fontFamily}`,
  }
  const bars = UPlot.paths.bars?.({ size: [0.72, 36], radius: 0.12 })
  const options: UPlot.Options = {
    width: element.clientWidth,
    height: plotHeight,
    // Bars are sums of UTC days or hours, so label them in UTC instead of in local time.
    ...(isBars && { tzDate: (seconds: number) => UPlot.tzDate(new Date(seconds * 1000), 'Etc/UTC') }),
    legend: { show: false },
    padding: [12, 8, 0, 0],
    cursor: { y: false, points: { show: !isBars }, drag: { x: false, y: false } },
    scales: {
      x: { range: (_, from, to) => padded(from, to, isBars ? stepOf(times) * 0.6 : (to - from) * 0.02 || 1) },
      y: { range: (_, __, top) => [0, top * 1.08 || 1] },
    },
    axes: [
      {
        ...axis,
        grid: { show: false },
        size: 30,
        space: 76,
        values: (_, splits, __, ___, step) => splits.map((seconds) => nameTick(seconds, step, isBars)),
      },
      { ...axis, size: 64, values: (_, values) => values.map((value) => writeValue(value)) },
    ],
    series: [
      {},
      ...series.map(({ title, color }): UPlot.Series => {
        const paint = readColor(element, color)
        return {
          label: title,
          stroke: paint,
          ...(isBars
            ? { fill: paint, width: 0, ...(bars && { paths: bars }), points: { show: false } }
            : { width: 1.5, points: { show: true, size: 7, fill: paint } }),
        }
      }),
    ],
    hooks: { setCursor: [(self) => onPoint(self.cursor.idx ?? null)] },
  }
  return new UPlot(options, data, element)
}

/** Returns the computed value of a custom property, because a canvas doesn't support `light-dark()`. */
function readColor(element: HTMLElement, property: string): string {
  const probe = document.createElement('i')
  probe.style.color = `var(${property})`
  element.append(probe)
  const { color } = getComputedStyle(probe)
  probe.remove()
  return color
}

function stepOf(times: number[]): number {
  return (times.at(-1) ?? 0) - (times.at(-2) ?? 0)
}

/** Extends a range on both sides, so that the outer bars, or a single point, have room. */
function padded(from: number, to: number, room: number): [number, number] {
  return [from - room, to + room]
}

const daySeconds = 86_400
const month = { month: 'short', year: '2-digit' } as const
const day = { day: 'numeric', month: 'short' } as const
const minute = { hour: '2-digit', minute: '2-digit' } as const

/** Formats a tick's time, in more detail if ticks are close together. */
function nameTick(seconds: number, step: number, isBars: boolean): string {
  // Bars are UTC days or hours.
  const isUtc = isBars || readZone() === 'utc'
  const time = new Date(seconds * 1000)
  const timeZone = isUtc ? { timeZone: 'UTC' } : {}
  const isMidnight = isUtc
    ? seconds % daySeconds === 0
    : time.getHours() + time.getMinutes() + time.getSeconds() === 0
  const form =
    step >= 28 * daySeconds
      ? month
      : step >= daySeconds || isMidnight
        ? day
        : step >= 60
          ? minute
          : { ...minute, second: '2-digit' as const }
  return createDateFormat({ ...form, ...timeZone }).format(time)
}
