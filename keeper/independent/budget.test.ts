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
