import { expect, test } from 'vitest'
import { planPayments } from './plan.ts'

test('default: plans 100 payments for the count trigger, 20 for the amount trigger, and one of high value', () => {
  const plan = planPayments(120)
  expect(plan.micropayments.map(({ price, count }) => [price, count])).toEqual([
    [5_000n, 100],
    [60_000n, 20],
  ])
  expect(plan.highValue).toMatchObject({ price: 12_000_000n, count: 1 })
  const amount = plan.tab.reduce((sum, { price, count }) => sum + price * BigInt(count), 0n)
  expect(plan.tab.map(({ count }) => count)).toEqual(Array(5).fill(400))
  // The keeper would close the tab at 0.8 USDC, which is four fifths of a new payer's credit.
  expect(amount).toBe(760_000n)
})

test.each([
  [0, [0, 0]],
  [1, [1, 0]],
  [12, [10, 2]],
  [107, [90, 17]],
  [108, [90, 18]],
  [500, [480, 20]],
])('args: splits %i micropayments over two providers', (count, split) => {
  const plan = planPayments(count)
  expect(plan.micropayments.map((purchase) => purchase.count)).toEqual(split)
})
