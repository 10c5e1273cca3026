import type { GatewayError } from './errors.ts'

/** How an attempt failed. */
export type Failure = Pick<GatewayError, 'code' | 'status' | 'retryAfterSeconds'>

const firstDelayMs = 500
const longestDelayMs = 8_000
/** HTTP statuses after which the same call may succeed later. */
const temporary: ReadonlySet<number> = new Set([408, 500, 502, 503, 504])

/**
 * Returns whether a call may be sent again after a failure.
 *
 * The gateway responds with 429 before it processes a call, so any call may be repeated after that. After other failures, the gateway may have
 * executed the call although the response was lost, so only idempotent calls are repeated.
 */
export function mayRepeat({ code, status = 0 }: Failure, isRepeatable: boolean): boolean {
  if (status === 429) return true
  return isRepeatable && (code === 'network_error' || temporary.has(status))
}

/**
 * Returns the time in ms before the next attempt. This is the time that the gateway requests. Without such a request, it is 0.5 s, doubled with each
 * attempt, up to 8 s. Up to a quarter is subtracted at random, so that clients that failed at the same time don't retry at the same time.
 *
 * @param attempt number of the attempt, from 0
 * @param random a random number from 0 to 1
 */
export function retryDelayMs(
  attempt: number,
  { retryAfterSeconds }: Pick<Failure, 'retryAfterSeconds'>,
  random: number,
): number {
  if (retryAfterSeconds !== undefined) return retryAfterSeconds * 1_000
  return Math.min(firstDelayMs * 2 ** attempt, longestDelayMs) * (1 - random / 4)
}

/** Reads `Retry-After`, in seconds or as a date (RFC 9110 10.2.3). */
export function readRetryAfter(header: string | null, nowMs: number): number | undefined {
  if (header === null) return undefined
  if (/^\d{1,9}$/.test(header)) return Number(header)
  // `Date.parse` also accepts other formats, but an HTTP date starts with a weekday.
  const date = /^[A-Z][a-z]+,? /.test(header) ? Date.parse(header) : Number.NaN
  return Number.isNaN(date) ? undefined : Math.max(0, Math.ceil((date - nowMs) / 1_000))
}
