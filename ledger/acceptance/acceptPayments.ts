import type { Address, Hex } from 'viem'
import { splitterShares } from '#protocol/splitter'
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

/** What a payment came through x402's facilitator with. */
export type Facilitation = {
  /** Whose API key came along; null: none did. */
  providerId: string | null
  paymentIdentifier: string | null
  /** What the provider owes for it, base units. */
  fee: bigint
}

/** The draw for a payment's gas that no fee carries, USDC base units. */
export type GasDraw = {
  /** Whose grant it is drawn from; null, or a provider without a grant: the common allowance. */
  providerId: string | null
  amount: bigint
  /** What these may draw a UTC day. */
  common: bigint
}

/** Which door a payment came through. */
export type PaymentSource = 'gateway' | 'facilitator' | 'refund' | 'submission'

/** A payment that passed every check but uniqueness and the payer's limit. */
export type Candidate = {
  id: string
  source: PaymentSource
  /** The challenge that it answers; null: it came through another door than the gateway's /verify. */
  requestId: string | null
  /** Null: of a facilitator's caller without an API key, a submission or a refund. */
  providerId: string | null
  /** Null: came through another door than the gateway's /verify. */
  endpointId: string | null
  chainId: number
  token: Address
  payer: Address
  payerHasCode: boolean
  /** The provider's and the platform's wallet, and the part of each in what was signed. */
  payee: Address
  feeRecipient: Address
  providerAmount: bigint
  feeAmount: bigint
  /** Whom the one authorization pays that carries both parts; null: each part has its own. */
  splitter: Address | null
  /** The provider's, and then the platform's where it has one of its own. */
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
  /** Default: its fee carries its gas. */
  gas?: GasDraw
  /** Until when its caller hears an answer, Unix milliseconds of the database's clock. Default: as long as it takes. */
  deadline?: number
  /** What the payer's `accepted_total` may reach: its balance or cap, plus what of it is no longer owed. */
  limit: bigint | null
}

/**
 * - `accepted`: stored, durable
 * - `replayed`: its challenge or one of its authorizations was stored before
 * - `over_limit`: the payer's balance or cap doesn't cover it, as far as `limit` knew
 * - `gas_not_covered`: nothing is left today for its gas
 * - `late`: its caller hears no answer any more
 */
export type Verdict = 'accepted' | 'replayed' | 'over_limit' | 'gas_not_covered' | 'late'

/**
 * Stores candidates: reserves the payers' balance, then inserts payments and authorizations, in one statement and so in
 * one round trip (ledger/migrations/0001_schema.sql). What happens to one doesn't touch the others.
 *
 * @returns one verdict a candidate, in order.
 */
export async function acceptPayments(database: Queryable, candidates: Candidate[]): Promise<Verdict[]> {
  const refused = await database<{ id: string; reason: Exclude<Verdict, 'accepted'> }[]>`
    select refused_id as id, reason
    from accept_payments(
      ${compositeArray(candidates.map(toFields))}::text::candidate[],
      ${compositeArray(candidates.flatMap(toAuthorizationFields))}::text::candidate_authorization[])`
  if (refused.length === 0) return candidates.map(() => 'accepted')
  const reasons = new Map(refused.map(({ id, reason }) => [id, reason]))
  return candidates.map(({ id }) => reasons.get(id) ?? 'accepted')
}

/** As the type `candidate` has them. */
function toFields(candidate: Candidate): CompositeField[] {
  const { authorizations, facilitation, gas, first } = candidate
  const [provider, fee] = authorizations
  const { providerAmount, feeAmount } = candidate
  const shares = candidate.splitter && splitterShares(providerAmount + feeAmount, feeAmount)
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
    facilitation?.fee ?? null,
    gas?.providerId ?? null,
    gas?.amount ?? null,
    gas?.common ?? null,
    candidate.deadline ?? null,
  ]
}

/** As the type `candidate_authorization` has them. */
function toAuthorizationFields({ id, authorizations }: Candidate): CompositeField[][] {
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
