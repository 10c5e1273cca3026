import { Refusal } from '../http/refusal.ts'

export type Interval = 'hour' | 'day' | 'month' | 'total'

const hourMs = 3_600_000
const dayMs = 24 * hourMs

/** Number of days that a view shows by interval: the default and the maximum. */
const days: Record<Interval, { usual: number; most: number }> = {
  hour: { usual: 2, most: 31 },
  day: { usual: 30, most: 366 },
  month: { usual: 366, most: 36_600 },
  total: { usual: 36_600, most: 36_600 },
}

/**
 * Returns the whole UTC intervals that [from, to) touches; by default up to now.
 *
 * @throws {Refusal} `invalid_date_range` if the range is reversed, empty, or longer than the interval allows.
 */
export function choosePeriod(
  interval: Interval,
  asked: { from?: Date | undefined; to?: Date | undefined },
  now: Date,
): { from: Date; to: Date } {
  const { usual, most } = days[interval]
  const end = asked.to ?? now
  const to = ceil(interval, end)
  const from = floor(interval, asked.from ?? new Date(Math.max(to.getTime() - usual * dayMs, 0)))
  if (asked.from && asked.from >= end) {
    throw new Refusal(
      'invalid_date_range',
      `from ${asked.from.toISOString()} must be before to ${end.toISOString()}`,
    )
  }
  if (asked.from && to.getTime() - from.getTime() > (most + 1) * dayMs) {
    throw new Refusal('invalid_date_range', `A query by ${interval} can cover at most ${most} days`)
  }
  return { from, to }
}

function floor(interval: Interval, time: Date): Date {
  if (interval === 'month') return new Date(Date.UTC(time.getUTCFullYear(), time.getUTCMonth()))
  const step = interval === 'hour' ? hourMs : dayMs
  return new Date(Math.floor(time.getTime() / step) * step)
}

function ceil(interval: Interval, time: Date): Date {
  const start = floor(interval, time)
  if (start.getTime() === time.getTime()) return start
  if (interval === 'month') return new Date(Date.UTC(start.getUTCFullYear(), start.getUTCMonth() + 1))
  return new Date(start.getTime() + (interval === 'hour' ? hourMs : dayMs))
}
