import type { Address, Hex } from 'viem'
import { isAuthorization } from '../facts/halves.ts'
import type { Database } from '../store/database.ts'

/** The claims of a payment's receipt. A repeated request is answered from them and from the payment that it presents. */
export type StoredPayment = {
  paymentId: string
  requestId: string | null
  tier: string
  effectiveRate: string
  acceptedAt: Date
  chainId: number
  token: Address
  payer: Address
  resource: string
  payee: Address
  feeRecipient: Address
  providerAmount: bigint
  feeAmount: bigint
  splitter: Address | null
  /** USDC base units. */
  price: bigint
  idempotencyKey: string | null
  /** When the request that presented it ended without an answer; null otherwise, and null again once another request has taken over the payment. */
  releasedAt: Date | null
  /** SHA-256 in hex; null once the request is deleted. */
  requestHash: string | null
}

const columns = (database: Database) => database`
  id as "paymentId", request_id as "requestId", tier, effective_rate as "effectiveRate", accepted_at as "acceptedAt",
  chain_id as "chainId", token, payer, resource, payee, fee_recipient as "feeRecipient",
  provider_amount as "providerAmount", fee_amount as "feeAmount", splitter, price, idempotency_key as "idempotencyKey",
  released_at as "releasedAt", encode(request_hash, 'hex') as "requestHash"`

/** Finds the payment that used this challenge. */
export async function findPaymentOfRequest(
  database: Database,
  requestId: string,
): Promise<StoredPayment | undefined> {
  const [row] = await database<StoredPayment[]>`
    select ${columns(database)} from payment left join presentation on payment_id = id where request_id = ${requestId}`
  return row
}

/** Finds a payment that holds one of these authorizations, on any of these tokens. */
export async function findStoredPayment(
  database: Database,
  used: { tokens: { chainId: number; token: Address }[]; payer: Address; nonces: Hex[] },
): Promise<StoredPayment | undefined> {
  const chainIds = used.tokens.map(({ chainId }) => chainId)
  const tokens = used.tokens.map(({ token }) => token)
  const [row] = await database<StoredPayment[]>`
    select ${columns(database)}
    from payment left join presentation on payment_id = id
    where id in (
      select a.payment_id
      from unnest(${chainIds}::int[], ${tokens}::text[]) as served (chain_id, token)
      cross join unnest(${used.nonces}::text[]) as used (nonce)
      join signed_authorization a on ${isAuthorization(
        database,
        { chainId: database`served.chain_id`, token: database`served.token` },
        { payer: used.payer, nonce: database`used.nonce` },
      )}
    )
    limit 1`
  return row
}
