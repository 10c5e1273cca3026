import type { Address } from 'viem'
import { findKeyOwner, findRegisteredPayees, hasSubmitGrant } from '#ledger/registry/apiKeys'
import type { Queryable } from '#ledger/store/database'
import type { Logger } from '#process/log'
import type { RateLimiter } from '#process/rateLimiter'
import { BaseError } from '#protocol/errors'
import type { Network } from '#protocol/networks'
import type { SignedAuthorization } from '#protocol/payload'
import { splitPrice } from '#protocol/tier'
import type { SubmitLimits } from '../settings/settings.ts'

/** A request of `POST /submit`: the key that it carries, and where it comes from. */
export type SubmitCaller = { apiKey: string | null; address: string }

/**
 * What a caller may ask for. Keys are free to everybody who registers, so a key alone spends none of our gas: it only lets
 * payers with code in, and takes its caller out of the budget that all callers without one share.
 *
 * `granted`: the operator lets this provider settle anything, without a fee.
 */
export type Standing = 'keyless' | 'keyed' | 'granted'

type Limiting = { sql: Queryable; rateLimiter: RateLimiter; limits: SubmitLimits; log: Logger }

/**
 * Finds out who asks, and counts the request.
 *
 * @throws {BaseError} `rate_limited`; `unauthorized` for a key that isn't in force.
 */
export async function admitCaller(
  { sql, rateLimiter, limits, log }: Limiting,
  { apiKey, address }: SubmitCaller,
): Promise<Standing> {
  countRequest(rateLimiter, `submit:${address}`, limits.perCaller, 'submissions', 'from one address')
  if (apiKey === null) return 'keyless'
  const providerId = await findKeyOwner(sql, apiKey)
  if (providerId === undefined) throw new BaseError('unauthorized')
  countRequest(rateLimiter, `submit:${providerId}`, limits.perCaller, 'submissions', 'of one provider')
  if (!(await hasSubmitGrant(sql, providerId))) return 'keyed'
  log.info({ provider: providerId }, 'submission by a provider with the grant: no fee is asked for')
  return 'granted'
}

/**
 * Counts a new submission against the budget of all callers without a key. Called for what has passed every check that
 * costs no call to the chain, so that junk can't use the budget up.
 */
export function countKeyless({ rateLimiter, limits }: Pick<Limiting, 'rateLimiter' | 'limits'>): void {
  const scope = 'without an API key, all callers together'
  countRequest(rateLimiter, 'submit:keyless', limits.keyless, 'submissions', scope)
}

/** @throws {BaseError} `rate_limited` where it is one too many of this minute. */
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
 * The rules that keep our gas from being spent for nothing: each transfer has a value; without the grant it goes to a
 * registered wallet, with the same payer's fee for it, or to a splitter of both.
 *
 * @throws {BaseError} `amount_too_low`, `payee_refused`
 */
export async function requireWorthGas(
  { sql, platformWallets }: { sql: Queryable; platformWallets: readonly Address[] },
  network: Network,
  transfers: readonly SignedAuthorization[],
  standing: Standing,
): Promise<void> {
  const empty = transfers.findIndex(({ value }) => value === 0n)
  if (empty >= 0) {
    const details = { transfer: empty }
    throw new BaseError('amount_too_low', 'A transfer of nothing is not settled', { details })
  }
  if (standing === 'granted') return
  const splitters = await findFeeShares(sql, network.chainId, platformWallets, transfers)
  const others = transfers.filter(({ to }) => !splitters.has(to))
  requireSharedFees(network, splitters, transfers)
  if (others.length === 0) return
  const payees = [...new Set(others.map(({ to }) => to))].filter((to) => !platformWallets.includes(to))
  const registered =
    payees.length > 0 ? await findRegisteredPayees(sql, network.chainId, payees) : new Set<string>()
  const unknown = payees.find((payee) => !registered.has(payee))
  if (unknown) {
    const details = { payee: unknown }
    throw new BaseError('payee_refused', `${unknown} is not a registered wallet`, { details })
  }
  requireFees(network, platformWallets, others)
}

/** A splitter's transfer carries both parts: its share for the platform is the fee. */
function requireSharedFees(
  network: Network,
  splitters: ReadonlyMap<Address, FeeShare>,
  transfers: readonly SignedAuthorization[],
): void {
  for (const [transfer, { to, value }] of transfers.entries()) {
    const share = splitters.get(to)
    if (!share || isEnough(network, value, (value * share.part) / share.whole)) continue
    throw new BaseError('payee_refused', 'The splitter gives the platform less than its fee', {
      details: { transfer },
    })
  }
}

type FeeShare = { part: bigint; whole: bigint }

/** Of those that transfers pay, the splitters that payments of this gateway paid before, with the platform's share. */
async function findFeeShares(
  sql: Queryable,
  chainId: number,
  platformWallets: readonly Address[],
  transfers: readonly SignedAuthorization[],
): Promise<Map<Address, FeeShare>> {
  const addresses = [...new Set(transfers.map(({ to }) => to))]
  const rows = await sql<({ address: Address } & FeeShare)[]>`
    select address, platform_share as part, provider_share + platform_share as whole from splitter
    where chain_id = ${chainId} and address in ${sql(addresses)} and platform in ${sql(platformWallets)}`
  return new Map(
    rows.map(({ address, part, whole }) => [address, { part: BigInt(part), whole: BigInt(whole) }]),
  )
}

/** Each transfer to a provider comes with the same payer's fee for it. */
function requireFees(
  network: Network,
  platformWallets: readonly Address[],
  transfers: readonly SignedAuthorization[],
): void {
  const isFee = (transfer: SignedAuthorization) => platformWallets.includes(transfer.to)
  const byValue = (a: SignedAuthorization, b: SignedAuthorization) => (a.value < b.value ? -1 : 1)
  const fees = transfers.filter(isFee).toSorted(byValue)
  // The dearest payment takes its payer's largest fee: no other match could satisfy more of them.
  for (const provider of transfers
    .filter((transfer) => !isFee(transfer))
    .toSorted(byValue)
    .reverse()) {
    const position = fees.findLastIndex((fee) => fee.from === provider.from)
    const [fee] = position < 0 ? [] : fees.splice(position, 1)
    if (fee && isEnough(network, provider.value + fee.value, fee.value)) continue
    const details = { transfer: transfers.indexOf(provider) }
    throw new BaseError(
      'payee_refused',
      'Each transfer to a provider needs the platform fee for it, of the same payer',
      { details },
    )
  }
  // What is left is the fees of payments whose other half is settled already.
  const least = splitPrice(network.minimumPrice, 'flat').feeAmount
  const dust = fees.find((fee) => fee.value < least)
  if (dust) {
    const details = { transfer: transfers.indexOf(dust) }
    throw new BaseError('payee_refused', `A fee is at least ${least} base units`, { details })
  }
}

/** By either fee schedule: which one the gateway goes by is its own business. */
function isEnough({ minimumPrice }: Network, price: bigint, fee: bigint): boolean {
  if (price < minimumPrice) return false
  return (['tiered', 'flat'] as const).some((schedule) => fee >= splitPrice(price, schedule).feeAmount)
}
