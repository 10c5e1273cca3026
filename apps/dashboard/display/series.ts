import { parseUsdc } from '@tollkeeper/sdk/protocol/amount'
import type { RevenueRow } from '../gateway/answers.ts'

export type RangeName = 'hours' | 'days' | 'months'

/** The ranges of the overview, and how each is queried. */
export const ranges: Record<RangeName, { title: string; interval: 'hour' | 'day' | 'month'; count: number }> =
  {
    hours: { title: '48 hours', interval: 'hour', count: 48 },
    days: { title: '30 days', interval: 'day', count: 30 },
    months: { title: '12 months', interval: 'month', count: 12 },
  }

/** Returns the starts (UTC) of a range's intervals up to now, oldest first. */
export function startsOf(name: RangeName, now: Date): Date[] {
  const { interval, count } = ranges[name]
  const [year, month, day, hour] = [
    now.getUTCFullYear(),
    now.getUTCMonth(),
    now.getUTCDate(),
    now.getUTCHours(),
  ]
  return Array.from({ length: count }, (_, index) => {
    const back = count - 1 - index
    if (interval === 'month') return new Date(Date.UTC(year, month - back))
    if (interval === 'day') return new Date(Date.UTC(year, month, day - back))
    return new Date(Date.UTC(year, month, day, hour - back))
  })
}

export type RevenuePoint = {
  startsAt: Date
  settled: bigint
  outstanding: bigint
  failed: bigint
  payments: number
}

/** Returns one point for each interval, including empty intervals. */
export function revenueSeries(rows: readonly RevenueRow[], starts: readonly Date[]): RevenuePoint[] {
  const byStart = new Map(rows.map((row) => [row.startsAt && Date.parse(row.startsAt), row]))
  return starts.map((startsAt) => {
    const row = byStart.get(startsAt.getTime())
    return {
      startsAt,
      settled: parseUsdc(row?.settled_usdc ?? '0'),
      outstanding: parseUsdc(row?.outstanding_usdc ?? '0'),
      failed: parseUsdc(row?.failed_usdc ?? '0'),
      payments: row?.payments ?? 0,
    }
  })
}
