import { describeCode } from '../../display/format.ts'
import type { UsageRow } from '../../gateway/answers.ts'

/** Returns the number of calls that carried a payment. */
export function presentedOf({ calls, challenged }: Pick<UsageRow, 'calls' | 'challenged'>): number {
  return calls - challenged
}

/** Refusals within an interval: a count for each shown code, and one count for all other codes together. */
export type RefusalPoint = { startsAt: Date; byCode: number[]; others: number; total: number }

const shownCodes = 2

/** Counts refusals in total, with the most frequent code first, and over time, with one point for each interval. */
export function refusalSeries(
  rows: readonly UsageRow[],
  starts: readonly Date[],
): { codes: string[]; totals: [code: string, count: number][]; points: RefusalPoint[] } {
  const counts = new Map<string, number>()
  for (const [code, count] of rows.flatMap(({ refused }) => Object.entries(refused)))
    counts.set(code, (counts.get(code) ?? 0) + count)
  const totals = [...counts].sort(([a, first], [b, second]) => second - first || (a < b ? -1 : 1))
  const codes = totals.slice(0, shownCodes).map(([code]) => code)
  const byStart = new Map(rows.map((row) => [row.startsAt && Date.parse(row.startsAt), row]))
  const points = starts.map((startsAt) => {
    const refused = byStart.get(startsAt.getTime())?.refused ?? {}
    const byCode = codes.map((code) => refused[code] ?? 0)
    const total = Object.values(refused).reduce((sum, count) => sum + count, 0)
    return { startsAt, byCode, others: total - byCode.reduce((sum, count) => sum + count, 0), total }
  })
  return { codes, totals, points }
}

/** Names a refusal in a plot's legend. */
export function nameRefusal(code: string | undefined): string {
  return code === undefined ? 'Other reasons' : describeCode(code)
}
