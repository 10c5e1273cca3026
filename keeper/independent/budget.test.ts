import { expect, test } from 'vitest'
import { createBudget } from './budget.ts'

/** A second before midnight, UTC. */
const evening = new Date('2026-11-21T23:59:59Z')
const midnight = new Date('2026-11-22T00:00:00Z')

function openBudget() {
  const clock = { now: evening }
  const budget = createBudget(() => clock.now)
  return { clock, budget, account: budget.openAccount() }
}

test('default: sums the cost of today’s gas less the rewards, and starts from zero each UTC day', () => {
  const { clock, budget, account } = openBudget()
  account.book({ cost: 60n, reward: 0n })
  account.book({ cost: 5n, reward: 0n })
  expect(budget.spentToday()).toBe(65n)
  account.book({ cost: 5n, reward: 100n })
  expect(budget.spentToday()).toBe(-30n)
  clock.now = midnight
  expect(budget.spentToday()).toBe(0n)
})

test('default: reserves amounts in order, up to the day’s limit', () => {
  const { clock, account } = openBudget()
  account.book({ cost: 60n, reward: 0n })
  expect(account.reserve([30n, 20n, 10n, 1n], 100n)).toEqual([true, false, true, false])
  expect(account.reserve([40n], 100n)).toEqual([true])
  expect(account.reserve([41n], 100n)).toEqual([false])
  expect(account.reserve([1_000n], 0n)).toEqual([true])
  clock.now = midnight
  expect(account.reserve([100n, 1n], 100n)).toEqual([true, false])
})

test('behavior: wallets that reserve at the same time never exceed the limit together', () => {
  const { budget, account } = openBudget()
  const other = budget.openAccount()
  expect(account.reserve([60n], 100n)).toEqual([true])
  expect(other.reserve([41n, 40n], 100n)).toEqual([false, true])
  expect(other.reserveSweeps(0n, 100n)).toBe(true)
  expect(other.reserveSweeps(1n, 100n)).toBe(false)
  // A wallet that plans its transaction again replaces its reservation.
  expect(account.reserve([60n], 100n)).toEqual([true])
  // If a transaction costs less than reserved or is never sent, other wallets can use the rest.
  account.book({ cost: 50n, reward: 0n })
  expect(other.reserveSweeps(10n, 100n)).toBe(true)
  other.release()
  expect(account.reserve([50n], 100n)).toEqual([true])
})

test('behavior: a transaction in flight at midnight also counts towards the next day’s budget', () => {
  const { clock, budget, account } = openBudget()
  account.reserve([70n], 100n)
  clock.now = midnight
  expect(budget.openAccount().reserve([31n, 30n], 100n)).toEqual([false, true])
})

test('behavior: the cost of sweeps is reserved as well, so that all wallets together stay within the limit', () => {
  const { budget, account } = openBudget()
  const other = budget.openAccount()
  expect(account.reserve([30n], 100n)).toEqual([true])
  expect(other.reserve([30n], 100n)).toEqual([true])
  expect(account.reserveSweeps(25n, 100n)).toBe(true)
  expect(other.reserveSweeps(25n, 100n)).toBe(false)
  expect(other.reserveSweeps(15n, 100n)).toBe(true)
  // A replacement doesn't reserve its sweeps twice: the larger amount counts.
  expect(account.reserveSweeps(25n, 100n)).toBe(true)
  expect(account.reserveSweeps(5n, 100n)).toBe(true)
  expect(other.reserveSweeps(16n, 100n)).toBe(false)
  // However the transaction ends, the reservation for its sweeps is released as well.
  account.book({ cost: 40n, reward: 0n })
  expect(other.reserveSweeps(30n, 100n)).toBe(true)
  other.release()
  expect(account.reserve([60n], 100n)).toEqual([true])
  expect(account.reserveSweeps(1_000n, 0n)).toBe(true)
})
