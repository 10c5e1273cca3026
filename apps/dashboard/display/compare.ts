import { formats } from './locale.ts'

/** Formats the change of a figure since the previous period: `+12.5%`; undefined if the previous figure was 0. */
export function writeChange(now: bigint | number, before: bigint | number): string | undefined {
  const [current, previous] = [BigInt(now), BigInt(before)]
  if (previous <= 0n) return undefined
  // Calculates in thousandths, so that no amount becomes a float.
  return formats().change.format(Number(((current - previous) * 1_000n) / previous) / 1_000)
}

/**
 * Formats the note under a figure: its value in the previous period, and the change since then.
 *
 * @param title the period's length, such as "30 days"
 */
export function writeBefore<T extends bigint | number>(
  [now, before]: readonly [now: T, before: T],
  write: (value: T) => string,
  title: string,
): string {
  const change = writeChange(now, before)
  return `${write(before)} in the ${title} before${change === undefined ? '' : ` (${change})`}`
}
