import type { Hash } from 'viem'
import type { TabPayload } from '../protocol/tab.ts'

/**
 * A signed payment for a challenge. It contains everything needed to present it again or to settle it immediately, and no secret.
 */
export type SignedPayment = SignedExactPayment | SignedTabPayment | SignedSellerPayment

/** A single payment. */
export type SignedExactPayment = Signed & {
  macaroon: string
  /** The provider's payload and the platform's payload, or one payload for both. */
  payloads: [both: string] | [provider: string, platform: string]
  tab?: undefined
  header?: undefined
}

/** The payment of a request on a tab. */
export type SignedTabPayment = Signed & {
  macaroon: string
  payloads: []
  /** The state of the tab that includes this request. */
  tab: TabPayload
  header?: undefined
}

/** A payment to a seller that doesn't use Tollkeeper (option `otherSellers`). No Tollkeeper gateway knows about it. */
export type SignedSellerPayment = Signed & {
  macaroon?: undefined
  payloads: [authorization: string]
  tab?: undefined
  /** The header that presents the payment, in the form that the seller requested. */
  header: PaymentHeader
}

/** A report on a payment, which only sellers that don't use Tollkeeper send. It is the seller's claim, not a proof. */
export type SellerReport = {
  /** Whether the seller reports that the payment has settled. */
  success?: boolean
  /** The transaction that the seller reports. */
  transaction?: Hash
  /** Why the seller refused the payment: a reason of x402 such as `insufficient_funds`. */
  reason?: string
}

/** The header that contains a payment. */
export type PaymentHeader = {
  name: 'authorization' | 'payment-signature' | 'x-payment' | 'service-pass'
  value: string
}

type Signed = {
  /** The challenge's request id or, for a payment to a seller that doesn't use Tollkeeper, the nonce. */
  requestId: string
  network: string
  /** The whole price in USDC base units. */
  amount: bigint
}
