/**
 * Where a payment stands. Derived from the chain wherever the chain decides, never stored.
 *
 * `verified`: queued. `settling`: in a broadcast batch. `partially_settled`: one half moved, the other didn't.
 * `failed`: retries exhausted or expired.
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

export type PaymentStatus = (typeof paymentStatuses)[number]

export function isPaymentStatus(status: unknown): status is PaymentStatus {
  return paymentStatuses.some((known) => known === status)
}
