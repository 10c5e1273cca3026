const firstDelayMs = 5_000

/** Maximum number of sendings of one message, spread over about two days. */
export const maxAttempts = 10

/** Maximum time in ms for which a message waits for a receiver that doesn't answer. After that it fails. */
export const lifetimeMs = 3 * 24 * 60 * 60_000

const longestPauseMs = 60 * 60_000

/**
 * Returns how long we send nothing to a receiver that did not answer. The first pause is five seconds. Each further sending without an answer makes
 * the pause four times as long, up to an hour. Messages that wait during a pause use up no attempt.
 *
 * @param silences number of sendings in a row without an answer, at least 1.
 */
export function pauseMs(silences: number): number {
  return Math.min(firstDelayMs * 4 ** (silences - 1), longestPauseMs)
}

const longestDelayMs = 24 * 60 * 60_000

/**
 * Decides when to send a message again after a failed sending.
 *
 * The first pause is five seconds. Each further pause is four times as long as the previous one, up to a day. A random change of up to a quarter
 * keeps messages that failed together from being retried together.
 *
 * @param attempts number of sendings so far, at least 1.
 * @param retryAfterMs the pause that the receiver requested, if any.
 * @param random in [0, 1).
 * @returns milliseconds, null if no attempt is left
 */
export function decideRedelivery({
  attempts,
  retryAfterMs = 0,
  random,
}: {
  attempts: number
  retryAfterMs?: number
  random: number
}): number | null {
  if (attempts >= maxAttempts) return null
  const delayMs = Math.min(firstDelayMs * 4 ** (attempts - 1), longestDelayMs)
  const jittered = Math.round(delayMs * (0.75 + random / 2))
  return Math.max(jittered, Math.min(retryAfterMs, longestDelayMs))
}
