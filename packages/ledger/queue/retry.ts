const minuteMs = 60_000

/** The delays of conformance 3-16, each counted from the payment's first failure. */
const retryDelaysMs = [minuteMs, 5 * minuteMs, 15 * minuteMs, 60 * minuteMs, 24 * 60 * minuteMs] as const

/** Number of failed attempts after which the provider is notified. */
export const notifyAfterAttempts = 3

// Time in ms to sign, send and mine a transaction.
const lastMomentMs = 30_000

export type RetryDecision = { status: 'retry'; at: Date } | { status: 'failed' }

/**
 * Decides between a retry and failure after an attempt that failed through the payment's own fault.
 *
 * @param attempts Number of failed attempts, including this one.
 * @param validBefore Unix seconds; the earlier expiry if the payment has two authorizations.
 * @param urgentAt Unix seconds; the last attempt is made at this time or soon afterwards.
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
  // If an attempt was late because the keeper was down, the next attempt doesn't follow immediately.
  const soonest = now.getTime() + minuteMs
  const scheduled = Math.max(firstFailedAt.getTime() + delayMs, soonest)
  const expiry = Number(validBefore) * 1000
  const at = Math.min(scheduled, Math.max(Number(urgentAt) * 1000, soonest))
  return at > expiry - lastMomentMs ? { status: 'failed' } : { status: 'retry', at: new Date(at) }
}
