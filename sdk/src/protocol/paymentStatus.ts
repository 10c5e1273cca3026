/**
 * Every status that a payment can have (conformance 3-2). Derived from the chain wherever the chain decides, never stored.
 *
 * - `verified`: accepted and queued.
 * - `settling`: in a batch that was broadcast.
 * - `settled`: both authorizations moved their USDC.
 * - `partially_settled`: one authorization moved its USDC, the other didn't.
 * - `retrying`: its settlement failed and is tried again.
 * - `failed`: its retries are exhausted, or it expired.
 * - `voided`: the provider took it back before it settled.
 *
 * @example
 * import { paymentStatuses } from '@tollkeeper/sdk/protocol'
 *
 * console.log(paymentStatuses.length)
 * // 7
 */
export const paymentStatuses = [
  'verified',
  'settling',
  'settled',
  'partially_settled',
  'retrying',
  'failed',
  'voided',
] as const

/** A status of a payment: one of {@link paymentStatuses}. */
export type PaymentStatus = (typeof paymentStatuses)[number]

export function isPaymentStatus(status: unknown): status is PaymentStatus {
  return paymentStatuses.some((known) => known === status)
}
