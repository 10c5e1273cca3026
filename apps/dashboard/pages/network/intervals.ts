import type { NetworkActivity } from '../../gateway/answers.ts'

export type Interval = NetworkActivity['interval']
export type IntervalRow = NetworkActivity['intervals'][number]

const dayMs = 86_400_000
export const lengthMs: Record<Interval, number> = { day: dayMs, week: 7 * dayMs }

export type NetworkPoint = { startsAt: Date; row: IntervalRow | undefined }

/**
 * Returns one point for each interval from the first shown interval until now, including intervals without
 * settlements.
 */
export function networkSeries({ from, interval, intervals }: NetworkActivity, now: number): NetworkPoint[] {
  const rows = new Map(intervals.map((row) => [Date.parse(row.startsAt), row]))
  const first = Date.parse(from)
  const last = Math.max(now, ...rows.keys())
  const count = Math.max(1, Math.floor((last - first) / lengthMs[interval]) + 1)
  return Array.from({ length: count }, (_, index) => {
    const start = first + index * lengthMs[interval]
    return { startsAt: new Date(start), row: rows.get(start) }
  })
}

export function gasPerPayment({ gas_used, payments }: { gas_used: string; payments: number }): bigint {
  return payments === 0 ? 0n : BigInt(gas_used) / BigInt(payments)
}
