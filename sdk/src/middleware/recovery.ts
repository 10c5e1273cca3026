/** Keeps a process alive for work after the answer, if its runtime would end it. */
export type WaitUntil = (work: Promise<unknown>) => void

/** Maximum number of open verifications, or of open voids, that the background work remembers. The oldest is forgotten first. */
export const maxOpen = 1_000

/** Delays in ms before each further question to a gateway that gave no certain answer. */
const firstDelaysMs = [3000, 6000, 16_000, 60_000]
/** The same after those, if the gateway is away for longer. The last one repeats as long as the process lives. */
const lateDelaysMs = [60_000, 180_000, 600_000]

function* lateDelays(): Generator<number> {
  yield* lateDelaysMs
  for (;;) yield lateDelaysMs.at(-1) as number
}

/**
 * Asks the gateway again in the background, until the answer is certain.
 *
 * @param ask asks after each delay; resolves to whether it needn't ask again.
 */
export function askUntilCertain(
  ask: (delaysMs: Iterable<number>, isLate: boolean) => Promise<boolean>,
  waitUntil: WaitUntil | undefined,
): void {
  const first = ask(firstDelaysMs, false)
  // The runtime isn't kept waiting for a gateway that may be away for hours.
  waitUntil?.(first)
  void first.then((isCertain) => isCertain || ask(lateDelays(), true)).catch(() => {})
}
