import type { Address, Hex } from 'viem'
import type { Queryable } from './database.ts'

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
  /** Unix milliseconds until when POST /settle may come; null: it came. */
  reservedUntil: number | null
}

/** A payment that passed every check but uniqueness and the payer's limit. */
export type Candidate = {
  id: string
  requestId: string
  /** Null: of a facilitator's caller without an API key, or reserved. */
  providerId: string | null
  /** Null: came through the facilitator. */
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
  /** Null: came through the facilitator. */
  receipt: string | null
  idempotencyKey: string | null
  /** SHA-256 in hex of what was presented. */
  requestHash: string
  /** Unix milliseconds. */
  challengedAt: number
  acceptedAt: number
  /** Default: it came through the gateway's /verify. */
  facilitation?: Facilitation
  isRefund?: boolean
  /** What the payer's `accepted_total` may reach: its balance or cap, plus what of it is no longer owed. */
  limit: bigint | null
}

/**
 * - `accepted`: stored, durable
 * - `replayed`: its challenge or one of its authorizations was stored before
 * - `over_limit`: the payer's balance or cap doesn't cover it, as far as `limit` knew
 */
export type Verdict = 'accepted' | 'replayed' | 'over_limit'

/**
 * Stores candidates: reserves the payers' balance, then inserts payments and authorizations, in one statement and so in
 * one round trip (ledger/migrations/0001_schema.sql). What happens to one doesn't touch the others.
 *
 * @returns one verdict a candidate, in order.
 */
export async function acceptPayments(database: Queryable, candidates: Candidate[]): Promise<Verdict[]> {
  const refused = await database<{ id: string; reason: Exclude<Verdict, 'accepted'> }[]>`
    select refused_id as id, reason
    from accept_payments(${JSON.stringify(candidates.map(toRow))}::text::json)`
  if (refused.length === 0) return candidates.map(() => 'accepted')
  const reasons = new Map(refused.map(({ id, reason }) => [id, reason]))
  return candidates.map(({ id }) => reasons.get(id) ?? 'accepted')
}

function toRow(candidate: Candidate) {
  const authorizations = candidate.authorizations.map(toAuthorizationRow)
  return {
    id: candidate.id,
    request_id: candidate.requestId,
    provider_id: candidate.providerId,
    endpoint_id: candidate.endpointId,
    chain_id: candidate.chainId,
    token: candidate.token,
    payer: candidate.payer,
    payer_has_code: candidate.payerHasCode,
    payer_limit: candidate.limit?.toString() ?? null,
    price: candidate.price.toString(),
    tier: candidate.tier,
    effective_rate: candidate.effectiveRate,
    resource: candidate.resource,
    receipt: candidate.receipt,
    idempotency_key: candidate.idempotencyKey,
    request_hash: candidate.requestHash,
    challenged_at: candidate.challengedAt,
    accepted_at: candidate.acceptedAt,
    payee: candidate.payee,
    fee_recipient: candidate.feeRecipient,
    splitter: candidate.splitter,
    provider_amount: candidate.providerAmount.toString(),
    fee_amount: candidate.feeAmount.toString(),
    valid_before: Math.min(...authorizations.map((one) => one.valid_before)),
    due_at: candidate.facilitation?.reservedUntil === null ? candidate.acceptedAt : null,
    source: candidate.facilitation ? 'facilitator' : candidate.isRefund ? 'refund' : 'gateway',
    facilitation: candidate.facilitation ? toFacilitationRow(candidate.facilitation) : null,
    authorizations,
  }
}

function toFacilitationRow({ providerId, paymentIdentifier, fee, reservedUntil }: Facilitation) {
  return {
    provider_id: providerId,
    payment_identifier: paymentIdentifier,
    fee: fee.toString(),
    reserved_until: reservedUntil,
  }
}

function toAuthorizationRow(authorization: AcceptedAuthorization, half: number) {
  const { recipient, value, validAfter, validBefore, nonce, signature, acceptedBlock } = authorization
  return {
    half,
    recipient,
    // Times and blocks: the codec takes none over 2^40. Amounts go as text.
    value: value.toString(),
    valid_after: Number(validAfter),
    valid_before: Number(validBefore),
    nonce,
    signature,
    accepted_block: acceptedBlock === null ? null : Number(acceptedBlock),
  }
}
