import type { Search } from './routing.ts'
import { type RangeName, ranges, startsOf } from './series.ts'

/** The intervals that a page shows. They are in UTC because the gateway keeps sums by UTC hour, day and month. */
export type Period = {
  /** `custom`: the reader chose `from` and `to`. */
  name: RangeName | 'custom'
  title: string
  interval: 'hour' | 'day' | 'month'
  /** The starts of the intervals, oldest first. */
  starts: Date[]
  from: Date
  to: Date
}

const hourMs = 3_600_000
const dayMs = 24 * hourMs
/** Maximum lengths in days of custom periods that are shown by hour and by day. */
const mostByHour = 2
const mostByDay = 366
const mostMonths = 120

/**
 * Returns the period that a page's link names: `period`, or the UTC days `from` and `to`, both inclusive.
 *
 * @param isByDay whether the figures are counted by whole days, so that no interval is shorter
 * @returns a message if the days are invalid
 */
export function choosePeriod({ period, from, to }: Search, now: Date, isByDay = false): Period | string {
  if (from === undefined && to === undefined) {
    const isKnown = period !== undefined && Object.hasOwn(ranges, period)
    const name = isKnown && !(isByDay && period === 'hours') ? (period as RangeName) : 'days'
    const { title, interval } = ranges[name]
    const starts = startsOf(name, now)
    return { name, title, interval, starts, from: starts[0] ?? now, to: now }
  }
  const today = new Date(now).setUTCHours(0, 0, 0, 0)
  const last = Math.min(to === undefined ? today : dayOf(to), today)
  const first = from === undefined ? last - 29 * dayMs : dayOf(from)
  if (Number.isNaN(first) || Number.isNaN(last)) return 'Expected dates such as 2026-11-29.'
  if (first > last) return 'The first day must not be after the last one, or after today.'
  return customPeriod(first, last, isByDay)
}

/** Returns midnight of a UTC day in Unix milliseconds; NaN if the text is not a day. */
function dayOf(date: string): number {
  return /^\d{4}-\d\d-\d\d$/.test(date) ? Date.parse(`${date}T00:00:00Z`) : Number.NaN
}

function customPeriod(first: number, last: number, isByDay: boolean): Period | string {
  const days = Math.round((last - first) / dayMs) + 1
  const title = `${days} ${days === 1 ? 'day' : 'days'}`
  const common = { name: 'custom', title, from: new Date(first), to: new Date(last + dayMs) } as const
  const steps = (stepMs: number, count: number) =>
    Array.from({ length: count }, (_, at) => new Date(first + at * stepMs))
  if (days <= mostByHour && !isByDay) return { ...common, interval: 'hour', starts: steps(hourMs, days * 24) }
  if (days <= mostByDay) return { ...common, interval: 'day', starts: steps(dayMs, days) }
  return customMonths(new Date(first), new Date(last))
}

/** Returns a period in whole months, because the gateway keeps sums of more than a year by month. */
function customMonths(first: Date, last: Date): Period | string {
  const [year, month] = [first.getUTCFullYear(), first.getUTCMonth()]
  const count = (last.getUTCFullYear() - year) * 12 + last.getUTCMonth() - month + 1
  if (count > mostMonths) return 'A period can be at most ten years long.'
  const starts = Array.from({ length: count }, (_, at) => new Date(Date.UTC(year, month + at)))
  const to = new Date(Date.UTC(year, month + count))
  return {
    name: 'custom',
    title: `${count} months`,
    interval: 'month',
    starts,
    from: starts[0] ?? first,
    to,
  }
}

/** Returns the period of equal length that precedes a period. */
export function previousOf({ interval, starts, from }: Period): { from: Date; to: Date } {
  const count = starts.length
  if (interval === 'month') {
    return { from: new Date(Date.UTC(from.getUTCFullYear(), from.getUTCMonth() - count)), to: from }
  }
  const stepMs = interval === 'hour' ? hourMs : dayMs
  return { from: new Date(from.getTime() - count * stepMs), to: from }
}

/** Names a period within a sentence: "the last 30 days", or "these 3 days" for custom days. */
export function namePeriod({ name, title }: Pick<Period, 'name' | 'title'>): string {
  if (name !== 'custom') return `the last ${title}`
  return title === '1 day' ? 'this day' : `these ${title}`
}
