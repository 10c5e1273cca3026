import { splitPrice } from '#protocol/tier'
import type { TriggerName } from './readBatches.ts'

/** Payments to one provider, all at the same price. */
export type Purchase = {
  provider: string
  /** USDC base units. */
  price: bigint
  count: number
}

export type Plan = {
  micropayments: [many: Purchase, some: Purchase]
  highValue: Purchase
  /** Payments that the plan makes in all. */
  total: number
  /** Triggers that must fire. */
  expected: TriggerName[]
}

const countThreshold = 100
const amountThreshold = 1_000_000n

/**
 * Splits `micropayments` over two providers, and adds one high-value payment to a third.
 *
 * The default, 120, gives 100 × 0.005 USDC, which settle by their count, and 20 × 0.06 USDC, which settle by their amount.
 */
export function planPayments(micropayments: number): Plan {
  const some = Math.min(20, Math.floor(micropayments / 6))
  const plan = {
    micropayments: [
      { provider: 'Micro Weather', price: 5_000n, count: micropayments - some },
      { provider: 'City Maps', price: 60_000n, count: some },
    ] satisfies [Purchase, Purchase],
    highValue: { provider: 'Deep Research', price: 12_000_000n, count: 1 },
  }
  const [first, second] = plan.micropayments
  const expected: TriggerName[] = ['high_value']
  if (first.count >= countThreshold) expected.push('count')
  // The trigger counts only what the wallet itself receives.
  if (BigInt(second.count) * splitPrice(second.price).providerAmount >= amountThreshold)
    expected.push('amount')
  return { ...plan, total: micropayments + 1, expected }
}
