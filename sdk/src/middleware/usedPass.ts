import type { Address } from 'viem'
import type { PassClaims } from '../protocol/pass.ts'

/** A valid pass, as the handler sees it. */
export type UsedPass = {
  /** Id of the payment that bought the pass. `GET /payments/{id}` returns that payment. */
  paymentId: string
  /** The wallet that paid, if the pass is bound to it. Undefined if anyone may use the pass. */
  payer: Address | undefined
  /** When the pass expires. If a connection is still open at that time, close it. */
  expiresAt: Date
  /** Number of requests left on the pass after this one. Undefined if they aren't counted. */
  left: number | undefined
}

/**
 * Returns a pass in the form that handlers get. @param left number of requests left on the pass, if they are counted.
 */
export function toUsedPass({ jti: paymentId, payer, exp }: PassClaims, left: number | undefined): UsedPass {
  return { paymentId, payer, expiresAt: new Date(exp * 1000), left }
}
