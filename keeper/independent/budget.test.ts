import { expect, test } from 'vitest'
import { createBudget } from './budget.ts'

test('default: what was spent today, and anew each UTC day', () => {
  let now = new Date('2026-11-21T23:59:59Z')
  const budget = createBudget(() => now)
  budget.spend(60n)
  budget.spend(5n)
  expect(budget.spentToday()).toBe(65n)
  now = new Date('2026-11-22T00:00:00Z')
  expect(budget.spentToday()).toBe(0n)
})
