/** The nearest-rank percentile; `share` of 1. NaN of nothing. */
export function percentile(values: readonly number[], share: number): number {
  const sorted = values.toSorted((a, b) => a - b)
  return sorted[Math.max(0, Math.ceil(sorted.length * share) - 1)] ?? Number.NaN
}

export const median = (values: readonly number[]) => percentile(values, 0.5)

export const round2 = (value: number) => Math.round(value * 100) / 100

/** The least and the greatest, to two decimals. */
export const spread = (values: readonly number[]): [number, number] => [
  round2(Math.min(...values)),
  round2(Math.max(...values)),
]
