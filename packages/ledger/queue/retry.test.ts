import { expect, test } from 'vitest'
import { decideRetry } from './retry.ts'

const first = new Date('2026-11-21T12:00:00Z')
const later = (ms: number) => new Date(first.getTime() + ms)
const minute = 60_000
const farAway = BigInt(first.getTime() / 1000) + 7n * 86_400n

const decide = (attempts: number, nowMs: number, validBefore = farAway) =>
  decideRetry({
    attempts,
    firstFailedAt: first,
    validBefore,
    urgentAt: validBefore - 300n,
    now: later(nowMs),
  })

test.each([
  ['the first failure', 1, 0, minute],
  ['the second failure', 2, minute, 5 * minute],
  ['the third failure', 3, 5 * minute, 15 * minute],
  ['the fourth failure', 4, 15 * minute, 60 * minute],
  ['the fifth failure', 5, 60 * minute, 24 * 60 * minute],
  ['a late attempt, by at least a minute', 2, 50 * minute, 51 * minute],
])('args: delays the retry after %s', (_name, attempts, nowMs, expectedMs) => {
  expect(decide(attempts, nowMs)).toEqual({ status: 'retry', at: later(expectedMs) })
})

test('args: fails permanently after the sixth failure', () => {
  expect(decide(6, 24 * 60 * minute)).toEqual({ status: 'failed' })
})

test.each([
  ['the delay would end after expiry', 4, 15 * minute, { status: 'retry', at: later(45 * minute) }],
  ['the payment is already urgent', 4, 46 * minute, { status: 'retry', at: later(47 * minute) }],
  ['only a minute is left', 4, 49 * minute, { status: 'failed' }],
  ['the payment has expired', 1, 51 * minute, { status: 'failed' }],
] as const)(
  'behavior: retries before the authorization expires, or fails the payment if no retry is possible before then: %s',
  (_name, attempts, nowMs, expected) => {
    const validBefore = BigInt(later(50 * minute).getTime() / 1000)
    expect(decide(attempts, nowMs, validBefore)).toEqual(expected)
  },
)
