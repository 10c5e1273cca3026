/** Sendings of one message at most, spread over about two days. */
export const maxAttempts = 10

const firstDelayMs = 5_000
const longestDelayMs = 24 * 60 * 60_000

/**
 * When to send a message again after a sending that failed.
 *
 * Five seconds, then four times as long each time, a day at most; moved by up to a quarter, so that the messages that
 * failed together don't come back together.
 *
 * @param attempts Sendings so far, at least 1.
 * @param retryAfterMs What the receiver asked for, where it did.
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
