/** Keeps a process alive for work after the response, in runtimes that would otherwise end it. */
export type WaitUntil = (work: Promise<unknown>) => void

/** Maximum number of verifications, and separately of voids, that are retried in the background. If there are more, the oldest is forgotten. */
export const maxOpen = 1_000

/** Delays in ms before the first retries, after the gateway gave no definite response. */
const firstDelaysMs = [3000, 6000, 16_000, 60_000]
/** Delays in ms before later retries, for longer outages. The last delay repeats as long as the process lives. */
const lateDelaysMs = [60_000, 180_000, 600_000]

function* lateDelays(): Generator<number> {
  yield* lateDelaysMs
  for (;;) yield lateDelaysMs.at(-1) as number
}

/**
 * Calls the gateway repeatedly in the background until its response is definite.
 *
 * @param ask makes one call after each of the given delays. Resolves to true if no further call is needed.
 */
export function askUntilCertain(
  ask: (delaysMs: Iterable<number>, isLate: boolean) => Promise<boolean>,
  waitUntil: WaitUntil | undefined,
): void {
  const first = ask(firstDelaysMs, false)
  // Keep the runtime alive only for the first retries, because the gateway may be unavailable for hours.
  waitUntil?.(first)
  void first.then((isCertain) => isCertain || ask(lateDelays(), true)).catch(() => {})
}
