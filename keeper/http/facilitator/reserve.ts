import type { Address } from 'viem'
import type { ChainReads } from '#chain/chainReads'
import { type GasMeter, sumGas } from '#chain/gasShares'
import type { PayerSignatures } from '#chain/payerSignatures'
import type { ServedNetwork } from '#chain/servedNetworks'
import type { createAccept } from '#ledger/acceptance/acceptance'
import { checkPresented, toCandidate } from '#ledger/acceptance/door'
import {
  findByPaymentIdentifier,
  findFacilitated,
  releaseReservations,
} from '#ledger/acceptance/facilitations'
import type { Payers } from '#ledger/acceptance/payers'
import type { RecordTrace } from '#ledger/acceptance/traces'
import type { Database } from '#ledger/store/database'
import { settleMarginSeconds } from '#ledger/store/settleMargin'
import { BaseError } from '#protocol/errors'
import { minimumPrice, splitPrice } from '#protocol/tier'
import type { FacilitatorSettings } from '../../settings/settings.ts'
import type { OpenLimit } from './openLimit.ts'
import { duplicateSettlement, InvalidPayment, reasonOf, wrongRecipient, wrongValue } from './reasons.ts'
import type { FacilitatorRequest } from './request.ts'

/** A network, and the cached standing of its payers. */
export type FacilitatorNetwork = {
  served: ServedNetwork
  reads: ChainReads
  payers: Payers
  meter: GasMeter
  gasPerFee: bigint
}

export function networkOf(
  networks: ReadonlyMap<number, FacilitatorNetwork>,
  { network: { chainId, name } }: ServedNetwork,
): FacilitatorNetwork {
  const network = networks.get(chainId)
  if (!network) throw new Error(`${name} is served without its payers`)
  return network
}

export type ReserveContext = {
  sql: Database
  networks: ReadonlyMap<number, FacilitatorNetwork>
  accept: ReturnType<typeof createAccept>
  payerSignatures: PayerSignatures
  /** How long a contract wallet may take to answer. */
  contractTimeoutMs: number
  /** The fee recipient. Here there are no fees: it only decides which payments may share a batch. */
  platformWallet: Address
  /** What all callers without a grant together may draw for gas on a UTC day. USDC base units. */
  gasAllowance: bigint
  openLimit: OpenLimit
  settings: FacilitatorSettings
  recordTrace: RecordTrace
  now: () => Date
}

export type FacilitatorCaller = {
  /** The provider of the API key that was sent; null: none was. */
  providerId: string | null
  /** Where its request is traced. */
  trace?: Uint8Array | null
}

/** The standard's own margin, and ours for the transaction. */
const leastValiditySeconds = settleMarginSeconds + 6

/**
 * Verifies a payment and stores it: reserved for its seller, or due at once.
 *
 * @returns its id; null if another payment holds its authorization or its payment identifier.
 * @throws {InvalidPayment|BaseError} for the first fault.
 */
export async function reserve(
  context: ReserveContext,
  request: FacilitatorRequest,
  caller: FacilitatorCaller,
  mode: 'reserved' | 'due',
): Promise<string | null> {
  const now = context.now().getTime()
  checkTerms(request, Math.floor(now / 1000))
  const { served, authorization, resource, paymentIdentifier } = request
  const network = networkOf(context.networks, served)
  const { providerId } = caller
  const checked = await checkPresented([authorization], network, {
    ...{ payerSignatures: context.payerSignatures, contractTimeoutMs: context.contractTimeoutMs },
    ...{ asksNonces: true, asksPayees: true, mayHaveCode: providerId !== null },
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
      ...{ source: 'facilitator', requestId: null, providerId, endpointId: null },
      first: mode === 'due' ? { stage: 'due', since: now } : { stage: 'reserved', until },
      ...{ chainId, token, payee: to, feeRecipient: context.platformWallet },
      ...{ providerAmount: value, feeAmount: 0n, splitter: null, price: value, effectiveRate: '0', resource },
      tier: value < minimumPrice ? 'ultra-micro' : splitPrice(value).tier,
      ...{ idempotencyKey: null, requestHash: request.hash, challengedAt: now, acceptedAt: now },
      facilitation: {
        ...{ providerId, paymentIdentifier },
        fee: providerId === null ? 0n : context.settings.fee,
      },
      gas: { providerId, amount: most, common: context.gasAllowance },
    },
    checked,
  )
  const accept = () => context.accept(candidate, network.payers, checked[0].state)
  // The cached standing of the payer may be older than the release.
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

/** Checks all that needs only the request. */
function checkTerms(
  { version, served, network, authorization, asked, accepted }: FacilitatorRequest,
  now: number,
) {
  if (accepted.scheme !== 'exact')
    throw new InvalidPayment('invalid_scheme', 'the accepted scheme must be exact')
  if (accepted.network !== network)
    throw new InvalidPayment('invalid_network', `the accepted network must be ${network}`)
  if (asked.asset.toLowerCase() !== served.token)
    throw new InvalidPayment(
      'invalid_payment_requirements',
      `the asset on ${network} must be ${served.token}`,
    )
  const { to, value, validAfter, validBefore } = authorization
  if (asked.payTo.toLowerCase() !== to)
    throw new InvalidPayment(wrongRecipient, `the authorization must pay ${asked.payTo}, it pays ${to}`)
  if (asked.amount !== value.toString() || value === 0n)
    throw new InvalidPayment(wrongValue(version), `the value must be ${asked.amount}, it is ${value}`)
  if (validAfter > now)
    throw new InvalidPayment(
      reasonOf('authorization_not_yet_valid'),
      `valid after ${validAfter}, it is ${now}`,
    )
  if (validBefore < now + leastValiditySeconds)
    throw new InvalidPayment(
      reasonOf('authorization_expired'),
      `must be valid for another ${leastValiditySeconds} seconds, is until ${validBefore}`,
    )
}

/** The payment identifier belongs to another payment: HTTP 409. */
export class IdentifierTaken extends Error {
  override name = 'IdentifierTaken'
}

/** @throws {IdentifierTaken} */
export async function requireIdentifier(
  sql: Database,
  { authorization, paymentIdentifier, hash }: FacilitatorRequest,
): Promise<void> {
  if (paymentIdentifier === null) return
  const held = await findByPaymentIdentifier(sql, authorization.from, paymentIdentifier)
  if (held && held.requestHash !== hash)
    throw new IdentifierTaken('the payment identifier was sent with another payment')
}

/**
 * Verifies a payment for its seller, who is about to serve, and reserves its authorization and amount.
 *
 * It says yes once, so that a replay isn't served.
 *
 * @throws {InvalidPayment|BaseError}
 */
export async function verify(
  context: ReserveContext,
  request: FacilitatorRequest,
  caller: FacilitatorCaller,
): Promise<void> {
  await requireIdentifier(context.sql, request)
  if ((await reserve(context, request, caller, 'reserved')) !== null) return
  await requireIdentifier(context.sql, request)
  throw new InvalidPayment(duplicateSettlement, 'this authorization was verified before')
}

/** The payment that holds a request's authorization; null: it isn't the facilitator's; undefined: there is none. */
export function findHeld(sql: Database, { served, authorization }: FacilitatorRequest) {
  const { from: payer, nonce } = authorization
  return findFacilitated(sql, { chainId: served.network.chainId, token: served.token, payer, nonce })
}
