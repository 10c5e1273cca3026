/** A challenge that was signed: enough to present it again or to have it settled at once. It holds no secret. */
export type SignedPayment = {
  requestId: string
  network: string
  macaroon: string
  /** The provider's payload and the platform's, or one for both. */
  payloads: [both: string] | [provider: string, platform: string]
  /** Base units, both together. */
  amount: bigint
}
