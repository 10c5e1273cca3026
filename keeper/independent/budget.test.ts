import { expect, test } from 'vitest'
import { createBudget } from './budget.ts'

test('default: what gas cost today beyond the rewards, and anew each UTC day', () => {
  let now = new Date('2026-11-21T23:59:59Z')
  const budget = createBudget(() => now)
  budget.book({ cost: 60n, reward: 0n })
  budget.book({ cost: 5n, reward: 0n })
  expect(budget.spentToday()).toBe(65n)
  budget.book({ cost: 5n, reward: 100n })
  expect(budget.spentToday()).toBe(-30n)
  now = new Date('2026-11-22T00:00:00Z')
  expect(budget.spentToday()).toBe(0n)
})

test('default: covers amounts in order, together at most the limit of the day', () => {
  let now = new Date('2026-11-21T23:59:59Z')
  const budget = createBudget(() => now)
  budget.book({ cost: 60n, reward: 0n })
  expect(budget.covers([30n, 20n, 10n, 1n], 100n)).toEqual([true, false, true, false])
  expect(budget.covers([40n], 100n)).toEqual([true])
  expect(budget.covers([41n], 100n)).toEqual([false])
  expect(budget.covers([1_000n], 0n)).toEqual([true])
  now = new Date('2026-11-22T00:00:00Z')
  expect(budget.covers([100n, 1n], 100n)).toEqual([true, false])
})
