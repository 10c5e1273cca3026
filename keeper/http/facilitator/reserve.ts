import { sumGas } from '@tollkeeper/chain/gasShares'
import { checkPresented, toCandidate } from '@tollkeeper/ledger/acceptance/door'
import {
  findByPaymentIdentifier,
  findFacilitated,
  releaseReservations,
} from '@tollkeeper/ledger/acceptance/facilitations'
import type { Database } from '@tollkeeper/ledger/store/database'
import { settleMarginSeconds } from '@tollkeeper/ledger/store/settleMargin'
import { BaseError } from '@tollkeeper/sdk/protocol/errors'
import { minimumPrice, splitPrice } from '@tollkeeper/sdk/protocol/tier'
import { type HttpContext, networkOf } from '../context.ts'
import { screenPayments } from '../screenPayments.ts'
import { duplicate, Refused, reasonOf, wrongRecipient, wrongValue } from './reasons.ts'
import type { FacilitatorRequest } from './request.ts'

export type FacilitatorCaller = {
  /** The provider whose API key the request contained; null for a request without a key. */
  providerId: string | null
  /** The context of the request's trace. */
  trace?: Uint8Array | null
}

/** Minimum remaining validity in seconds: the time that our transaction needs, plus the standard's margin of 6 seconds. */
const leastValiditySeconds = settleMarginSeconds + 6

/**
 * Verifies a payment and stores it, either as reserved for its seller or as due at once (`mode`).
 *
 * @returns the payment's id, or null if another payment holds the authorization or the payment identifier
 * @throws {Refused|BaseError} the first reason for a refusal
 */
export async function reserve(
  context: HttpContext,
  request: FacilitatorRequest,
  caller: FacilitatorCaller,
  mode: 'reserved' | 'due',
): Promise<string | null> {
  const now = context.now().getTime()
  checkTerms(request, Math.floor(now / 1000))
  await context.sales.requireOpen()
  const { served, authorization, resource, paymentIdentifier } = request
  const network = networkOf(context, served)
  const { providerId } = caller
  const checked = await checkPresented([authorization], network, {
    ...context.signatures,
    asksNonces: true,
    asksPayees: true,
    mayHaveCode: providerId !== null,
    screen: screenPayments(context, network, { providerId, source: 'facilitator', resource }),
  })
  const { from, to, value, validBefore } = authorization
  const {
    token,
    network: { chainId },
  } = served
  await context.openLimit.take(providerId, { chainId, token, address: to })
  const [{ hasCode }] = checked
  const { most } = sumGas([{ isPair: false, recipient: to, hasCode }], await network.meter.read())
  const until = Math.min(now + context.settings.reserveMs, (Number(validBefore) - settleMarginSeconds) * 1000)
  const candidate = toCandidate(
    {
      source: 'facilitator',
      requestId: null,
      providerId,
      endpointId: null,
      first: mode === 'due' ? { stage: 'due', since: now } : { stage: 'reserved', until },
      chainId,
      token,
      payee: to,
      feeRecipient: context.platformWallet,
      providerAmount: value,
      feeAmount: 0n,
      splitter: null,
      price: value,
      effectiveRate: '0',
      resource,
      tier: value < minimumPrice ? 'ultra-micro' : splitPrice(value).tier,
      idempotencyKey: null,
      requestHash: request.hash,
      challengedAt: now,
      acceptedAt: now,
      facilitation: { providerId, paymentIdentifier },
      gas: { providerId, amount: most, common: context.gasAllowance },
    },
    checked,
  )
  const accept = () => context.accept(candidate, network.payers, checked[0].state)
  // Releases the payer's expired reservations. The payer's cached amounts still include them, so the payer is removed from the cache.
  const release = async () => {
    const count = await releaseReservations(context.sql, context.now(), from)
    network.payers.forget(from)
    return count
  }
  let verdict = await accept().catch(async (error: unknown) => {
    if (!(error instanceof BaseError && error.code === 'insufficient_balance')) throw error
    await release()
    return accept()
  })
  if (verdict === 'replayed' && (await release()) > 0) verdict = await accept()
  if (verdict !== 'accepted') return null
  if (caller.trace) context.recordTrace(candidate.id, caller.trace)
  return candidate.id
}

/** Checks everything that the request alone can show, without the chain or the database. */
function checkTerms(
  { version, served, network, authorization, asked, accepted }: FacilitatorRequest,
  now: number,
) {
  if (accepted.scheme !== 'exact') throw new Refused('invalid_scheme', 'the accepted scheme must be exact')
  if (accepted.network !== network)
    throw new Refused('invalid_network', `the accepted network must be ${network}`)
  if (asked.asset.toLowerCase() !== served.token)
    throw new Refused('invalid_payment_requirements', `the asset on ${network} must be ${served.token}`)
  const { to, value, validAfter, validBefore } = authorization
  if (asked.payTo.toLowerCase() !== to)
    throw new Refused(wrongRecipient, `the authorization must pay ${asked.payTo}, but it pays ${to}`)
  if (value === 0n)
    throw new Refused(wrongValue(version), 'a payment of 0 cannot be settled: ask for an amount above 0')
  if (asked.amount !== value.toString())
    throw new Refused(wrongValue(version), `the value must be ${asked.amount}, but it is ${value}`)
  if (validAfter > now)
    throw new Refused(
      reasonOf('authorization_not_yet_valid'),
      `the authorization is valid after ${validAfter}, but the facilitator's time is ${now}: check whether the payer's clock is ahead`,
    )
  if (validBefore < now + leastValiditySeconds)
    throw new Refused(
      reasonOf('authorization_expired'),
      `the authorization must be valid for another ${leastValiditySeconds} seconds, but is valid until ${validBefore}, and the facilitator's time is ${now}: check whether the payer's clock is behind`,
    )
}

/** Requires that no other payment has the request's payment identifier. @throws {Refused} */
export async function requireIdentifier(
  sql: Database,
  { authorization, paymentIdentifier, hash }: FacilitatorRequest,
): Promise<void> {
  if (paymentIdentifier === null) return
  const held = await findByPaymentIdentifier(sql, authorization.from, paymentIdentifier)
  if (held && held.requestHash !== hash)
    throw new Refused(
      'invalid_payload',
      'the payment identifier was sent with another payment: use a new identifier',
      {
        status: 409,
      },
    )
}

/**
 * Verifies a payment for its seller, who is about to serve, and reserves its authorization and amount.
 *
 * It succeeds only once for each authorization, so that a replay isn't served.
 *
 * @throws {Refused|BaseError}
 */
export async function verify(
  context: HttpContext,
  request: FacilitatorRequest,
  caller: FacilitatorCaller,
): Promise<void> {
  await requireIdentifier(context.sql, request)
  if ((await reserve(context, request, caller, 'reserved')) !== null) return
  await requireIdentifier(context.sql, request)
  throw duplicate('this authorization was verified before: sign a new one')
}

/**
 * Finds the payment that holds a request's authorization. Returns undefined if no payment holds it, and null if the payment didn't come
 * through the facilitator.
 */
export function findHeld(sql: Database, { served, authorization }: FacilitatorRequest) {
  const { from: payer, nonce } = authorization
  return findFacilitated(sql, { chainId: served.network.chainId, token: served.token, payer, nonce })
}
