/** Returns the nearest-rank percentile, or NaN if there are no values. `share` is between 0 and 1. */
export function percentile(values: readonly number[], share: number): number {
  const sorted = values.toSorted((a, b) => a - b)
  return sorted[Math.max(0, Math.ceil(sorted.length * share) - 1)] ?? Number.NaN
}

export const median = (values: readonly number[]) => percentile(values, 0.5)

/** Returns the median of a value that is read from each run. */
export const medianOf = <Run>(runs: readonly Run[], read: (run: Run) => number) => median(runs.map(read))

/** Returns the median of each figure. */
export const mediansOf = <Figure extends string>(runs: readonly Record<Figure, number>[]) =>
  mapValues(runs[0] as Record<Figure, number>, (_, figure) => medianOf(runs, (run) => run[figure]))

export const sumOf = (values: readonly number[]) => values.reduce((sum, value) => sum + value, 0)
export const mean = (values: readonly number[]) => sumOf(values) / values.length

export const round1 = (value: number) => Math.round(value * 10) / 10
export const round2 = (value: number) => Math.round(value * 100) / 100

/** Returns the minimum and the maximum, rounded to two decimals. */
export const spread = (values: readonly number[]): [number, number] => [
  round2(Math.min(...values)),
  round2(Math.max(...values)),
]

/** Returns the median and the spread of ratios under the names of a report, `name` and `nameSpread`. */
export const medianAndSpread = (name: string, values: readonly number[]) => ({
  [name]: round2(median(values)),
  [`${name}Spread`]: spread(values),
})

/** Returns an object with the same keys and changed values. */
export function mapValues<Key extends string | number, From, To>(
  record: Record<Key, From>,
  change: (value: From, key: Key) => To,
): Record<Key, To> {
  const entries = Object.entries(record) as [Key, From][]
  return Object.fromEntries(entries.map(([key, value]) => [key, change(value, key)])) as Record<Key, To>
}

/** Formats a count as in the keys of figures: `100k`, `1M`. */
export function shortCount(count: number): string {
  if (count % 1_000_000 === 0) return `${count / 1_000_000}M`
  return count % 1_000 === 0 ? `${count / 1_000}k` : `${count}`
}

/** Prints the progress of a bench. */
export type Say = (line: string) => void

/**
 * Measures each kind in each round. The kinds take turns, so that other load on the machine affects all of them.
 *
 * @param rounds.counted the number of rounds whose results are returned
 * @param rounds.warmUps the number of earlier rounds, with negative numbers, that only warm everything up
 * @param rounds.say receives each result
 */
export async function inTurns<Kind extends string | number, Result>(
  kinds: readonly Kind[],
  { counted, warmUps = 0, say }: { counted: number; warmUps?: number; say?: Say },
  measure: (kind: Kind, round: number) => Promise<Result>,
): Promise<Record<Kind, Result[]>> {
  const results = Object.fromEntries(kinds.map((kind) => [kind, []])) as unknown as Record<Kind, Result[]>
  for (let round = -warmUps; round < counted; round++)
    for (const kind of kinds) {
      const result = await measure(kind, round)
      say?.(`round ${round + 1}, ${kind}: ${JSON.stringify(result, rounded)}`)
      if (round >= 0) results[kind].push(result)
    }
  return results
}

const rounded = (_: string, value: unknown) => (typeof value === 'number' ? round2(value) : value)
