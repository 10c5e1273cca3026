import { splitterShares } from '@tollkeeper/sdk/protocol/splitter'
import type { Address, Hex } from 'viem'
import { type FirstStage, firstPlace } from '../queue/stages.ts'
import { type CompositeField, compositeArray } from '../store/compositeArray.ts'
import type { Queryable } from '../store/database.ts'

/** One authorization of a payment that passed every check, as it is stored. */
export type AcceptedAuthorization = {
  recipient: Address
  value: bigint
  validAfter: bigint
  validBefore: bigint
  nonce: Hex
  signature: Hex
  /** The block at which the chain said that an unbound nonce was unused; null for a bound one. */
  acceptedBlock: bigint | null
}

export type AcceptedAuthorizations =
  | [AcceptedAuthorization]
  | [provider: AcceptedAuthorization, fee: AcceptedAuthorization]

/** What x402's facilitator adds to a payment. */
export type Facilitation = {
  /** The provider of the API key that was sent; null: none was. */
  providerId: string | null
  paymentIdentifier: string | null
}

/** What a payment draws for its gas because no fee carries it, USDC base units. */
export type GasDraw = {
  /** Whose grant pays; the common allowance where it is null or the provider has no grant. */
  providerId: string | null
  amount: bigint
  /** How much all who use the common allowance may draw a UTC day. */
  common: bigint
}

/** How a payment came in. */
export type PaymentSource = 'gateway' | 'facilitator' | 'refund' | 'submission' | 'tab'

/** A payment that passed every check but uniqueness and the payer's limit. */
export type Candidate = {
  id: string
  source: PaymentSource
  /** The challenge that it answers; null: it didn't come through the gateway's /verify. */
  requestId: string | null
  /** Null: a submission, a refund, or a facilitator's caller without an API key. */
  providerId: string | null
  /** Null: it didn't come through the gateway's /verify. */
  endpointId: string | null
  chainId: number
  token: Address
  payer: Address
  payerHasCode: boolean
  /** The provider's and the platform's wallet, and each one's part of what was signed. */
  payee: Address
  feeRecipient: Address
  providerAmount: bigint
  feeAmount: bigint
  /** The splitter that one authorization pays for both, or a tab's TabSettlement; null: each part has its own authorization. */
  splitter: Address | null
  /** The provider's, then the platform's if it has its own. */
  authorizations: AcceptedAuthorizations
  price: bigint
  tier: string
  effectiveRate: string
  resource: string
  idempotencyKey: string | null
  /** SHA-256 in hex of what was presented. */
  requestHash: string
  /** Unix milliseconds. */
  challengedAt: number
  acceptedAt: number
  first: FirstStage
  facilitation?: Facilitation
  /** The closed tab that it settles: `take_tabs` stores the rest of it. Its amount is reserved and its nonce claimed. */
  tabId?: string
  /** Absent: its fee carries its gas. */
  gas?: GasDraw
  /** Until when its caller waits, Unix milliseconds of the database's clock. Default: for ever. */
  deadline?: number
  /** The most that the payer's `accepted_total` may reach: its balance or cap, plus what it no longer owes. */
  limit: bigint | null
}

/**
 * - `accepted`: stored, durable
 * - `replayed`: its challenge or one of its authorizations was stored before
 * - `over_limit`: the payer's balance or cap, as `limit` has it, doesn't cover it
 * - `gas_not_covered`: today's allowance for its gas is used up
 * - `late`: its caller has stopped waiting
 */
export type Verdict = 'accepted' | 'replayed' | 'over_limit' | 'gas_not_covered' | 'late'

/**
 * Stores candidates: reserves the payers' balance, then inserts payments and authorizations, all by one statement (see
 * packages/ledger/functions/accept_payments.sql). A refused one leaves the others as they are.
 *
 * @returns one verdict a candidate, in order.
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
  const { authorizations, facilitation, gas, first, tabId = null } = candidate
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
