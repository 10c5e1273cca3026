import { findKeyOwner } from '@tollkeeper/ledger/registry/apiKeys'
import type { RateLimiter } from '@tollkeeper/runtime/rateLimiter'
import { BaseError } from '@tollkeeper/sdk/protocol/errors'
import type { HttpContext } from './context.ts'

/** A request of `POST /submit`: its key, and where it comes from. */
export type SubmitCaller = { apiKey: string | null; address: string }

/**
 * Finds out who asks, and counts the request. Keys are free, so a key alone spends none of our gas: it admits payers with
 * code, and draws what fees don't carry from its provider's grant.
 *
 * @returns the key's provider; null: no key was sent.
 * @throws {BaseError} `rate_limited`; `unauthorized` for a key that isn't in force.
 */
export async function admitCaller(
  { sql, rateLimiter, submitLimits: { perCaller } }: HttpContext,
  { apiKey, address }: SubmitCaller,
): Promise<string | null> {
  countRequest(rateLimiter, `submit:${address}`, perCaller, 'submissions', 'from one address')
  if (apiKey === null) return null
  const providerId = await findKeyOwner(sql, apiKey)
  if (providerId === undefined) throw new BaseError('unauthorized')
  countRequest(rateLimiter, `submit:${providerId}`, perCaller, 'submissions', 'of one provider')
  return providerId
}

/** @throws {BaseError} `rate_limited` if this minute has too many. */
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
  throw new BaseError('rate_limited', `At most ${limit} ${what} a minute ${scope}`, { details })
}
