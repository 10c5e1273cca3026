import type { PaymentStatus } from '#protocol/paymentStatus'
import type { HalfState } from './halves.ts'

export type PaymentFacts = {
  provider: HalfState
  /** null: the payment has no fee half. */
  fee: HalfState | null
  /** It stands in a batch that may be out. */
  isSettling: boolean
  attempts: number
  isFailed: boolean
  isVoided: boolean
}

/**
 * What to call a payment's state.
 *
 * What the chain shows comes first: money that moved has moved, whatever was intended.
 */
export function paymentStatus(facts: PaymentFacts): PaymentStatus {
  const halves = facts.fee === null ? [facts.provider] : [facts.provider, facts.fee]
  const settled = halves.filter((half) => half === 'settled').length
  if (settled === halves.length) return 'settled'
  if (settled > 0) return facts.isSettling ? 'settling' : 'partially_settled'
  if (facts.isVoided) return 'voided'
  if (facts.isSettling) return 'settling'
  if (facts.isFailed) return 'failed'
  return facts.attempts > 0 ? 'retrying' : 'verified'
}
