import { atLeastZero } from '@tollkeeper/sdk/protocol/amount'
import type { Network } from '@tollkeeper/sdk/protocol/networks'
import type { PaymentStatus } from '@tollkeeper/sdk/protocol/paymentStatus'
import {
  type ReceiptClaims,
  type ReceiptRefund,
  type ReceiptTab,
  zeroHash,
} from '@tollkeeper/sdk/protocol/receipt'
import { toWord } from '@tollkeeper/sdk/protocol/tab'
import type { Address, Hash, Hex } from 'viem'

/** The facts about an accepted payment that a receipt states. */
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
  payee: Address
  feeRecipient: Address
  providerAmount: bigint
  feeAmount: bigint
  splitter: Address | null
  validBefore: bigint
  provider: AuthorizationFacts
  fee: AuthorizationFacts | null
  /** Set if the request was bought on a tab. */
  tab?: { id: string; sequence: number; split: bigint; rewardShare: number } & LineClaims
}

type LineClaims = Omit<ReceiptTab, 'id' | 'sequence' | 'split' | 'rewardShare'>

/** Returns a receipt's claims about the line of a request; `reduced` is the part of its price that isn't charged. */
export function toLineClaims(
  at: { lineTotal: bigint; lineReduced: bigint | null },
  reduced: bigint,
): LineClaims {
  // A line that began with a credit may be below zero until the credit is used up.
  const lineTotal = atLeastZero(at.lineTotal - reduced)
  const lineReduced = (at.lineReduced ?? 0n) + reduced
  return {
    lineTotal: lineTotal.toString(),
    ...(lineReduced > 0n && { lineReduced: lineReduced.toString() }),
    ...(reduced > 0n && { reduced: reduced.toString() }),
  }
}

type AuthorizationFacts = { recipient: Address; value: bigint; nonce: Hex }

export function receiptClaims(
  facts: ReceiptFacts,
  signing: {
    issuer: string
    /** Unix milliseconds. */
    signedAt: number
    status: PaymentStatus
    /** The transaction that moved the provider's half, once it has enough confirmations. */
    settlement?: { transactionHash: Hash; blockHash: Hash }
    /** Default: none. */
    refunds?: ReceiptRefund[]
  },
): ReceiptClaims {
  const { provider, fee, providerAmount, feeAmount } = facts
  return {
    paymentId: facts.paymentId,
    providerId: facts.providerId,
    endpointId: facts.endpointId,
    totalUsdc: (providerAmount + feeAmount).toString(),
    providerUsdc: providerAmount.toString(),
    platformUsdc: feeAmount.toString(),
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
    validBefore: facts.validBefore.toString(),
    authorizations: fee ? [toAuthorization(provider), toAuthorization(fee)] : [toAuthorization(provider)],
    ...(facts.splitter !== null && { split: { provider: facts.payee, platform: facts.feeRecipient } }),
    ...(signing.settlement && { blockHash: signing.settlement.blockHash }),
    ...(facts.tab && {
      tab: { ...facts.tab, split: toWord(facts.tab.split) },
    }),
    ...(signing.refunds && signing.refunds.length > 0 && { refunds: signing.refunds }),
  }
}

function toAuthorization({ recipient, value, nonce }: AuthorizationFacts) {
  return { to: recipient, value: value.toString(), nonce }
}
