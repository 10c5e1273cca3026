const minuteMs = 60_000

/** SPEC.md 8.2's delays, each counted from the payment's first failure. */
const retryDelaysMs = [minuteMs, 5 * minuteMs, 15 * minuteMs, 60 * minuteMs, 24 * 60 * minuteMs] as const

/** After how many failed attempts the provider is told. */
export const notifyAfterAttempts = 3

// The time that a transaction needs to be signed, sent and mined.
const lastMomentMs = 30_000

export type RetryDecision = { status: 'retry'; at: Date } | { status: 'failed' }

/**
 * What follows an attempt that failed through the payment's own fault.
 *
 * @param attempts Failed attempts, this one included.
 * @param validBefore Unix seconds; the sooner of the two halves.
 * @param urgentAt Unix seconds; when the last attempt is made, or soon after.
 */
export function decideRetry({
  attempts,
  firstFailedAt,
  validBefore,
  urgentAt,
  now,
}: {
  attempts: number
  firstFailedAt: Date
  validBefore: bigint
  urgentAt: bigint
  now: Date
}): RetryDecision {
  const delayMs = retryDelaysMs[attempts - 1]
  if (delayMs === undefined) return { status: 'failed' }
  // An attempt that itself came late (the keeper was down) is not followed by the next one at once.
  const soonest = now.getTime() + minuteMs
  const scheduled = Math.max(firstFailedAt.getTime() + delayMs, soonest)
  const expiry = Number(validBefore) * 1000
  const at = Math.min(scheduled, Math.max(Number(urgentAt) * 1000, soonest))
  return at > expiry - lastMomentMs ? { status: 'failed' } : { status: 'retry', at: new Date(at) }
}
