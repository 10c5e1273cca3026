import type { TabPayload } from '../protocol/tab.ts'

/** A signed challenge: enough to present it again or to have it settled at once. It holds no secret. */
export type SignedPayment = SignedExactPayment | SignedTabPayment

/** A single payment. */
export type SignedExactPayment = Signed & {
  /** The provider's payload and the platform's, or one for both. */
  payloads: [both: string] | [provider: string, platform: string]
  tab?: undefined
}

/** A request that was put on a tab. */
export type SignedTabPayment = Signed & {
  payloads: []
  /** The tab's state with this request. */
  tab: TabPayload
}

type Signed = {
  requestId: string
  network: string
  macaroon: string
  /** Base units: what the provider and the platform get together. */
  amount: bigint
}
