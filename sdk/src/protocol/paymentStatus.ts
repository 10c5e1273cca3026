/**
 * All possible statuses of a payment (conformance 3-2). If the status depends on the chain, it is computed from the chain and never stored.
 *
 * - `verified`: the gateway has accepted and queued the payment.
 * - `settling`: the payment is in a batch that was broadcast.
 * - `settled`: both authorizations transferred their USDC.
 * - `partially_settled`: only one of the two authorizations transferred its USDC.
 * - `retrying`: the settlement failed, and the keeper retries it.
 * - `failed`: the retries are exhausted, or the payment expired.
 * - `voided`: the provider voided the payment before it settled.
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
