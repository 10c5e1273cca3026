const firstDelayMs = 5_000

/** Most sendings of one message, spread over about two days. */
export const maxAttempts = 10

/** How long a message waits for a receiver that doesn't answer, before we give it up. */
export const lifetimeMs = 3 * 24 * 60 * 60_000

const longestPauseMs = 60 * 60_000

/**
 * How long we send nothing to a receiver that did not answer: five seconds, four times as long each time, an hour at
 * most. Its messages wait, without losing an attempt.
 *
 * @param silences Sendings in a row without an answer, at least 1.
 */
export function pauseMs(silences: number): number {
  return Math.min(firstDelayMs * 4 ** (silences - 1), longestPauseMs)
}

const longestDelayMs = 24 * 60 * 60_000

/**
 * When to send a message again after a sending that failed.
 *
 * Five seconds, then four times as long each time, a day at most. Each pause is moved by up to a quarter, so that messages that
 * failed together don't come back together.
 *
 * @param attempts Sendings so far, at least 1.
 * @param retryAfterMs The receiver's wish, if it has one.
 * @param random In [0, 1).
 * @returns milliseconds, null when no attempt is left
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
