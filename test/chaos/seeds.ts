/**
 * Returns the seeds of a test: `fixed`, or with `npm run test:chaos -- --runs N --seed S` N consecutive seeds,
 * starting at S.
 *
 * @param fixed The seeds that run in `npm test`.
 */
export function seeds(fixed: readonly number[]): number[] {
  const { CHAOS_RUNS, CHAOS_SEED } = process.env
  if (CHAOS_RUNS === undefined && CHAOS_SEED === undefined) return [...fixed]
  const first = CHAOS_SEED === undefined ? (fixed[0] ?? 1) : Number(CHAOS_SEED)
  return Array.from({ length: Number(CHAOS_RUNS ?? 1) }, (_, index) => first + index)
}

/** Runs `run`. If it fails, adds the command that repeats it to the error. */
export async function replayable(seed: number, part: string, run: () => Promise<unknown>): Promise<void> {
  try {
    await run()
  } catch (error) {
    const how = `npm run test:chaos -- ${part} --seed ${seed}`
    throw new Error(
      `seed ${seed} failed. To repeat it: ${how}\n${error instanceof Error ? error.message : error}`,
      {
        cause: error,
      },
    )
  }
}
