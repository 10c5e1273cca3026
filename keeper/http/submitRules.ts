import { type Entry, type GasMeter, type GasShare, sumGas } from '@tollkeeper/chain/gasShares'
import { refuseWhere } from '@tollkeeper/ledger/acceptance/checkSignatures'
import type { Checked } from '@tollkeeper/ledger/acceptance/door'
import { findKeyOwner } from '@tollkeeper/ledger/registry/apiKeys'
import { findSuspendedPayees, isClosedProvider } from '@tollkeeper/ledger/registry/suspendProvider'
import type { Queryable } from '@tollkeeper/ledger/store/database'
import type { RateLimiter } from '@tollkeeper/runtime/rateLimiter'
import { BaseError } from '@tollkeeper/sdk/protocol/errors'
import type { SignedAuthorization } from '@tollkeeper/sdk/protocol/payload'
import type { HttpContext } from './context.ts'
import type { Submission } from './parseSubmission.ts'

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

/**
 * Takes nothing new from a provider that is disabled or suspended, neither with its key nor for its wallets.
 *
 * @param isKnown whether a transfer was accepted before: that one settles all the same.
 * @throws {BaseError} `provider_disabled`
 */
export async function requireOpen(
  sql: Queryable,
  { served: { network, token }, transfers }: Pick<Submission, 'served' | 'transfers'>,
  providerId: string | null,
  isKnown: (transfer: SignedAuthorization) => boolean,
): Promise<void> {
  const fresh = transfers.filter((one) => !isKnown(one)).map(({ to }) => to)
  const [isClosed, suspended] = await Promise.all([
    providerId !== null && isClosedProvider(sql, providerId),
    findSuspendedPayees(sql, { chainId: network.chainId, token }, fresh),
  ])
  if (isClosed) throw new BaseError('provider_disabled', 'The provider of this API key is disabled')
  refuseWhere(transfers, (one) =>
    suspended.has(one.to) && !isKnown(one)
      ? { code: 'provider_disabled', detail: `the operator has suspended who owns ${one.to}` }
      : null,
  )
}

/** @throws {BaseError} `amount_too_low` */
export function requireValues(transfers: readonly SignedAuthorization[]): void {
  const empty = transfers.findIndex(({ value }) => value === 0n)
  if (empty < 0) return
  const details = { transfer: empty }
  throw new BaseError('amount_too_low', 'A transfer of nothing is not settled', { details })
}

/** The cost of a transaction with these transfers. @param feeOf for each transfer the one whose fee it is; null: it is no fee */
export async function priceSubmission(
  meter: GasMeter,
  presented: readonly Checked[],
  feeOf: readonly (number | null)[],
): Promise<GasShare> {
  const entries = presented.flatMap(({ to: recipient, hasCode }, index): Entry[] =>
    feeOf[index] == null ? [{ isPair: feeOf.includes(index), recipient, hasCode }] : [],
  )
  return sumGas(entries, await meter.read())
}
