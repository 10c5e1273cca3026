import type { Hash } from 'viem'
import type { TabPayload } from '../protocol/tab.ts'

/** A signed challenge: enough to present it again or to have it settled at once. It holds no secret. */
export type SignedPayment = SignedExactPayment | SignedTabPayment | SignedSellerPayment

/** A single payment. */
export type SignedExactPayment = Signed & {
  macaroon: string
  /** The provider's payload and the platform's, or one for both. */
  payloads: [both: string] | [provider: string, platform: string]
  tab?: undefined
  header?: undefined
}

/** A request that was put on a tab. */
export type SignedTabPayment = Signed & {
  macaroon: string
  payloads: []
  /** The tab's state with this request. */
  tab: TabPayload
  header?: undefined
}

/** A payment to a seller that isn't Tollkeeper's (`payOtherSellers`). No gateway of ours knows it. */
export type SignedSellerPayment = Signed & {
  macaroon?: undefined
  payloads: [authorization: string]
  tab?: undefined
  /** The header that presents it, in the form that its seller asked for. */
  header: PaymentHeader
}

/** What a seller that isn't Tollkeeper's reports on a payment. It is that seller's word, and no proof. */
export type SellerReport = {
  /** Whether it says that the payment has settled. */
  success?: boolean
  /** The transaction that it names. */
  transaction?: Hash
  /** Why it refused the payment, in x402's words, such as `insufficient_funds`. */
  reason?: string
}

/** The header that carries a payment. */
export type PaymentHeader = { name: 'authorization' | 'payment-signature' | 'x-payment'; value: string }

type Signed = {
  /** The challenge's; of a payment to another seller, the nonce. */
  requestId: string
  network: string
  /** Base units: the whole price. */
  amount: bigint
}
