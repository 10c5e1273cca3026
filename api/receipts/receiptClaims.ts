import type { Address, Hash, Hex } from 'viem'
import type { Network } from '#protocol/networks'
import type { PaymentStatus } from '#protocol/paymentStatus'
import { type ReceiptClaims, zeroHash } from '#protocol/receipt'

/** What a receipt says about an accepted payment. */
export type ReceiptFacts = {
  paymentId: string
  providerId: string
  endpointId: string
  tier: string
  effectiveRate: string
  /** Unix milliseconds. */
  acceptedAt: number
  network: Network
  token: Address
  payer: Address
  resource: string
  provider: HalfFacts
  fee: HalfFacts
}

type HalfFacts = { recipient: Address; value: bigint; nonce: Hex; validBefore: bigint }

/** The claims of a receipt, as of `status`. */
export function receiptClaims(
  facts: ReceiptFacts,
  signing: {
    issuer: string
    /** Unix milliseconds. */
    signedAt: number
    status: PaymentStatus
    /** The transaction that moved the provider's half, once it is deep enough. */
    settlement?: { transactionHash: Hash; blockHash: Hash }
  },
): ReceiptClaims {
  const { provider, fee } = facts
  const validBefore = soonerOf(provider.validBefore, fee.validBefore)
  return {
    paymentId: facts.paymentId,
    providerId: facts.providerId,
    endpointId: facts.endpointId,
    totalUsdc: (provider.value + fee.value).toString(),
    providerUsdc: provider.value.toString(),
    platformUsdc: fee.value.toString(),
    tier: facts.tier,
    effectiveRate: facts.effectiveRate,
    timestamp: new Date(facts.acceptedAt).toISOString(),
    transactionHash: signing.settlement?.transactionHash ?? zeroHash,
    iss: signing.issuer,
    iat: Math.floor(signing.signedAt / 1000),
    status: signing.status,
    network: facts.network.name,
    testnet: facts.network.testnet,
    asset: facts.token,
    payer: facts.payer,
    resource: facts.resource,
    validBefore: validBefore.toString(),
    authorizations: [toAuthorization(provider), toAuthorization(fee)],
    ...(signing.settlement && { blockHash: signing.settlement.blockHash }),
  }
}

/** The earlier of two Unix times. */
export function soonerOf(first: bigint, second: bigint): bigint {
  if (first < second) return first
  return second
}

function toAuthorization({ recipient, value, nonce }: HalfFacts) {
  return { to: recipient, value: value.toString(), nonce }
}
