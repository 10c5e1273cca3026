import { describe, expect, test } from 'vitest'
import { defaultTriggers, estimatedSettlement, firedTrigger, type WaitingPayments } from './triggers.ts'

const now = new Date('2026-11-21T12:00:00Z')
const seconds = BigInt(now.getTime() / 1000)
const quiet: WaitingPayments = {
  paymentCount: 1,
  amount: 1n,
  largestPayment: 1n,
  firstQueuedAt: now,
  firstUrgentAt: seconds + 92_700n,
  retryDue: false,
}
const cheap = 0n
const atTheLine = 20_000n
const dear = 20_001n
const ago = (ms: number) => new Date(now.getTime() - ms)

describe('firedTrigger', () => {
  test.each([
    ['an empty queue', { paymentCount: 0, amount: 5_000_000n }, cheap, null],
    ['one small payment', {}, cheap, null],
    ['a total of one unit below 1.00 USD', { amount: 999_999n }, cheap, null],
    ['a total of 1.00 USD', { amount: 1_000_000n }, cheap, 'amount'],
    ['a total of 1.00 USD at a cost of exactly 0.02', { amount: 1_000_000n }, atTheLine, 'amount'],
    ['a total of 1.00 USD while settling is expensive', { amount: 1_000_000n }, dear, null],
    ['a total of one unit below 2.00 USD while settling is expensive', { amount: 1_999_999n }, dear, null],
    ['a total of 2.00 USD while settling is expensive', { amount: 2_000_000n }, dear, 'amount'],
    ['99 payments', { paymentCount: 99 }, cheap, null],
    ['100 payments', { paymentCount: 100 }, cheap, 'count'],
    ['100 payments while settling is expensive', { paymentCount: 100 }, dear, null],
    ['149 payments while settling is expensive', { paymentCount: 149 }, dear, null],
    ['150 payments while settling is expensive', { paymentCount: 150 }, dear, 'count'],
    // The trigger fires early, so that the transaction is sent within the hour.
    ['a wait of a millisecond below 59 minutes', { firstQueuedAt: ago(3_539_999) }, cheap, null],
    ['a wait of 59 minutes', { firstQueuedAt: ago(3_540_000) }, cheap, 'time'],
    ['a wait of 59 minutes while settling is expensive', { firstQueuedAt: ago(3_540_000) }, dear, 'time'],
    ['a payment of one unit below 10 USD', { largestPayment: 9_999_999n }, cheap, null],
    ['a payment of 10 USD', { largestPayment: 10_000_000n }, cheap, 'high_value'],
    ['a payment of 10 USD while settling is expensive', { largestPayment: 10_000_000n }, dear, 'high_value'],
    ['a payment that becomes urgent in a second', { firstUrgentAt: seconds + 1n }, cheap, null],
    ['an urgent payment', { firstUrgentAt: seconds }, cheap, 'expiry'],
    ['an urgent payment while settling is expensive', { firstUrgentAt: seconds }, dear, 'expiry'],
    ['a due retry', { retryDue: true }, dear, 'time'],
    ['a total of 1.00 USD in 100 payments', { amount: 1_000_000n, paymentCount: 100 }, cheap, 'amount'],
    [
      '100 payments after a wait of an hour',
      { paymentCount: 100, firstQueuedAt: ago(3_600_000) },
      cheap,
      'count',
    ],
    [
      'an urgent payment and a total of 1.00 USD',
      { amount: 1_000_000n, firstUrgentAt: seconds },
      cheap,
      'expiry',
    ],
    [
      'an urgent payment of 10 USD',
      { largestPayment: 10_000_000n, firstUrgentAt: seconds },
      cheap,
      'high_value',
    ],
  ] as const)('args: returns the trigger that fires, or null, for %s', (_name, change, cost, expected) => {
    expect(firedTrigger({ ...quiet, ...change }, defaultTriggers, cost, now)).toBe(expected)
  })
})

test('behavior: if its interval is short, the time trigger fires a tenth of the interval early to leave time for sending', () => {
  const settings = { ...defaultTriggers, timeMs: 5_000 }
  const fired = (ms: number) => firedTrigger({ ...quiet, firstQueuedAt: ago(ms) }, settings, cheap, now)
  expect([fired(4_499), fired(4_500)]).toEqual([null, 'time'])
})

test('behavior: estimates settlement an hour after the oldest payment, or earlier: when a payment becomes urgent, or when a trigger has fired and the oldest payment can no longer be voided', () => {
  const estimated = (change: Partial<WaitingPayments>, cost = cheap) =>
    estimatedSettlement({ ...quiet, ...change }, defaultTriggers, cost, now)
      .toISOString()
      .slice(11, 19)
  expect(estimated({})).toBe('13:00:00')
  expect(estimated({ firstUrgentAt: seconds + 1_500n })).toBe('12:25:00')
  expect(estimated({ paymentCount: 100 })).toBe('12:00:00')
  expect(estimated({ paymentCount: 100, mayBeVoided: true })).toBe('12:02:30')
  expect(estimated({ paymentCount: 100, mayBeVoided: true, firstQueuedAt: ago(150_000) })).toBe('12:00:00')
  expect(estimated({ paymentCount: 100 }, dear)).toBe('13:00:00')
  expect(estimated({ paymentCount: 150 }, dear)).toBe('12:00:00')
  expect(estimated({ paymentCount: 100, largestPayment: 10_000_000n })).toBe('12:00:00')
  expect(estimated({ paymentCount: 100, firstUrgentAt: seconds - 60n })).toBe('12:00:00')
})
