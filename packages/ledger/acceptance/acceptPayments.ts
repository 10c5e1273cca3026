import type { PassTerms } from '@tollkeeper/sdk/protocol/passTerms'
import { splitterShares } from '@tollkeeper/sdk/protocol/splitter'
import type { Address, Hex } from 'viem'
import { type FirstStage, firstPlace } from '../queue/stages.ts'
import { type CompositeField, compositeArray } from '../store/compositeArray.ts'
import type { Queryable } from '../store/database.ts'

/** An authorization of a payment that passed all checks, as it is stored. */
export type AcceptedAuthorization = {
  recipient: Address
  value: bigint
  validAfter: bigint
  validBefore: bigint
  nonce: Hex
  signature: Hex
  /**
   * The block at which the nonce was found to be unused. Null if the nonce is bound to its challenge: no other payment can use it, so the block
   * doesn't matter.
   */
  acceptedBlock: bigint | null
}

export type AcceptedAuthorizations =
  | [AcceptedAuthorization]
  | [provider: AcceptedAuthorization, fee: AcceptedAuthorization]

/** Additional data of a payment through the x402 facilitator. */
export type Facilitation = {
  /** The provider whose API key the request contained; null for a request without a key. */
  providerId: string | null
  paymentIdentifier: string | null
}

/** Gas money that a payment draws because its fee doesn't cover its gas, in USDC base units. */
export type GasDraw = {
  /** The provider whose grant pays. The common allowance pays if this is null or the provider has no grant. */
  providerId: string | null
  amount: bigint
  /** Maximum that all users of the common allowance together may draw per UTC day. */
  common: bigint
}

/** How a payment was presented. */
export type PaymentSource = 'gateway' | 'facilitator' | 'refund' | 'submission' | 'tab'

/** A payment that passed all checks except uniqueness and the payer's limit. */
export type Candidate = {
  id: string
  source: PaymentSource
  /** The challenge that the payment answers; null if the payment didn't come through the gateway's /verify. */
  requestId: string | null
  /** Null for a submission, a refund, or a facilitator's caller without an API key. */
  providerId: string | null
  /** Null if the payment didn't come through the gateway's /verify. */
  endpointId: string | null
  chainId: number
  token: Address
  payer: Address
  payerHasCode: boolean
  /** The wallets of the provider and the platform, and the part of the signed amount that each receives. */
  payee: Address
  feeRecipient: Address
  providerAmount: bigint
  feeAmount: bigint
  /**
   * Recipient of a single authorization that contains both parts: the splitter or, for a tab, TabSettlement. Null if each part has its own
   * authorization.
   */
  splitter: Address | null
  /** The provider's authorization, then the platform's if that is separate. */
  authorizations: AcceptedAuthorizations
  price: bigint
  tier: string
  effectiveRate: string
  resource: string
  idempotencyKey: string | null
  /** SHA-256 of the presented payment, in hex. */
  requestHash: string
  /** Unix milliseconds. */
  challengedAt: number
  acceptedAt: number
  first: FirstStage
  facilitation?: Facilitation
  /**
   * Set if the payment settles a closed tab. The tab has already reserved the amount and claimed the nonce. `take_tabs` stores the tab's other data.
   */
  tabId?: string
  /** Absent if the payment's fee covers its gas. */
  gas?: GasDraw
  /** Terms of the pass that the payment buys. */
  pass?: PassTerms
  /** Time until which the caller waits, in Unix milliseconds of the database's clock. Default: no limit. */
  deadline?: number
  /** Maximum for the payer's `accepted_total`: the payer's balance or cap, plus all accepted amounts that the payer no longer owes. */
  limit: bigint | null
}

/**
 * - `accepted`: stored, durable
 * - `replayed`: its challenge or one of its authorizations was stored before
 * - `over_limit`: the payer's balance or cap (`limit`) doesn't cover it
 * - `stopped`: the operator has stopped sales
 * - `gas_not_covered`: today's allowance for its gas is used up
 * - `late`: its caller has stopped waiting
 */
export type Verdict = 'accepted' | 'replayed' | 'over_limit' | 'stopped' | 'gas_not_covered' | 'late'

/**
 * Stores candidates with one statement, which reserves the payers' balances and inserts payments and authorizations (see
 * packages/ledger/functions/accept_payments.sql). A refused candidate doesn't affect the others.
 *
 * @returns one verdict per candidate, in order.
 */
export async function acceptPayments(database: Queryable, candidates: Candidate[]): Promise<Verdict[]> {
  const refused = await database<{ id: string; reason: Exclude<Verdict, 'accepted'> }[]>`
    select refused_id as id, reason
    from accept_payments(
      ${compositeArray(candidates.map(toCandidateFields))}::text::candidate[],
      ${compositeArray(candidates.flatMap(toAuthorizationFields))}::text::candidate_authorization[])`
  if (refused.length === 0) return candidates.map(() => 'accepted')
  const reasons = new Map(refused.map(({ id, reason }) => [id, reason]))
  return candidates.map(({ id }) => reasons.get(id) ?? 'accepted')
}

/** Returns a candidate's fields in the order of the type `candidate`. */
export function toCandidateFields(candidate: Candidate): CompositeField[] {
  const { authorizations, facilitation, gas, first, pass, tabId = null } = candidate
  const [provider, fee] = authorizations
  const { providerAmount, feeAmount } = candidate
  const hasSplitter = candidate.splitter !== null && tabId === null
  const shares = hasSplitter ? splitterShares(providerAmount + feeAmount, feeAmount) : null
  return [
    candidate.id,
    candidate.source,
    candidate.requestId,
    candidate.providerId,
    candidate.endpointId,
    candidate.chainId,
    candidate.token,
    candidate.payer,
    candidate.limit,
    candidate.payerHasCode,
    candidate.payee,
    candidate.feeRecipient,
    candidate.splitter,
    shares?.providerShare ?? null,
    shares?.platformShare ?? null,
    candidate.price,
    providerAmount,
    feeAmount,
    fee && fee.validBefore < provider.validBefore ? fee.validBefore : provider.validBefore,
    candidate.tier,
    candidate.effectiveRate,
    candidate.resource,
    candidate.idempotencyKey,
    candidate.requestHash,
    candidate.challengedAt,
    candidate.acceptedAt,
    ...firstPlace(first),
    facilitation?.providerId ?? null,
    facilitation?.paymentIdentifier ?? null,
    tabId,
    gas?.providerId ?? null,
    gas?.amount ?? null,
    gas?.common ?? null,
    pass?.seconds ?? null,
    pass?.requests ?? null,
    pass?.boundTo ?? null,
    candidate.deadline ?? null,
  ]
}

/** Returns the fields of a candidate's authorizations in the order of the type `candidate_authorization`. */
export function toAuthorizationFields({ id, authorizations }: Candidate): CompositeField[][] {
  return authorizations.map(
    ({ recipient, value, validAfter, validBefore, nonce, signature, acceptedBlock }, half) => [
      id,
      half,
      recipient,
      value,
      validAfter,
      validBefore,
      nonce,
      signature,
      acceptedBlock,
    ],
  )
}
