import { findKeyOwner } from '@tollkeeper/ledger/registry/apiKeys'
import type { RateLimiter } from '@tollkeeper/runtime/rateLimiter'
import { BaseError } from '@tollkeeper/sdk/protocol/errors'
import type { HttpContext } from './context.ts'

/** The caller of `POST /submit`: its API key and its address. */
export type SubmitCaller = { apiKey: string | null; address: string }

/**
 * Identifies the caller, and counts the request. API keys are free, so a key doesn't let its caller spend the operator's gas money. A key has two
 * effects: payers with code are admitted, and gas that fees don't cover may be drawn from the grant of the key's provider.
 *
 * @returns the key's provider, or null if the request has no key
 * @throws {BaseError} `rate_limited`; `unauthorized` for a key that isn't valid
 */
export async function admitCaller(
  { sql, rateLimiter, submitLimits: { perCaller } }: HttpContext,
  { apiKey, address }: SubmitCaller,
): Promise<string | null> {
  countRequest(rateLimiter, `submit:${address}`, perCaller, 'submissions', 'from one address')
  if (apiKey === null) return null
  const providerId = await findKeyOwner(sql, apiKey)
  if (providerId === undefined) throw new BaseError('unauthorized')
  countRequest(
    rateLimiter,
    `submit:${providerId}`,
    perCaller,
    'submissions',
    'with the API keys of one provider',
  )
  return providerId
}

/** Counts a request. @throws {BaseError} `rate_limited` if there were too many in this minute */
export function countRequest(
  rateLimiter: RateLimiter,
  key: string,
  most: number,
  what: string,
  scope: string,
): void {
  const { isAllowed, limit, resetSeconds } = rateLimiter.count(key, most)
  if (isAllowed) return
  const details = { retryAfter: resetSeconds }
  throw new BaseError(
    'rate_limited',
    `At most ${limit} ${what} per minute ${scope}: retry in ${resetSeconds} s`,
    { details },
  )
}
