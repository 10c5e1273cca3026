import { expect, test } from 'vitest'
import { createBudget } from './budget.ts'

test('default: allows up to the limit, and anew each UTC day', () => {
  let now = new Date('2026-11-21T23:59:59Z')
  const budget = createBudget(100n, () => now)
  expect(budget.allows(100n)).toBe(true)
  expect(budget.allows(101n)).toBe(false)
  budget.spend(60n)
  expect(budget.allows(40n)).toBe(true)
  expect(budget.allows(41n)).toBe(false)
  expect(budget.spentToday()).toBe(60n)
  now = new Date('2026-11-22T00:00:00Z')
  expect(budget.allows(100n)).toBe(true)
  expect(budget.spentToday()).toBe(0n)
})
