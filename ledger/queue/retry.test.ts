import { describe, expect, test } from 'vitest'
import { decideRetry } from './retry.ts'

const first = new Date('2026-11-21T12:00:00Z')
const later = (ms: number) => new Date(first.getTime() + ms)
const minute = 60_000
const farAway = BigInt(first.getTime() / 1000) + 7n * 86_400n
const leadMs = 5 * minute

describe('decideRetry', () => {
  test.each([
    ['first', 1, 0, minute],
    ['second', 2, minute, 5 * minute],
    ['third', 3, 5 * minute, 15 * minute],
    ['fourth', 4, 15 * minute, 60 * minute],
    ['fifth', 5, 60 * minute, 24 * 60 * minute],
  ])('args: %s failure', (_name, attempts, elapsedMs, expectedMs) => {
    expect(
      decideRetry({ attempts, firstFailedAt: first, validBefore: farAway, leadMs, now: later(elapsedMs) }),
    ).toEqual({ status: 'retry', at: later(expectedMs) })
  })

  test('args: the sixth failure is the last', () => {
    expect(
      decideRetry({
        attempts: 6,
        firstFailedAt: first,
        validBefore: farAway,
        leadMs,
        now: later(24 * 60 * minute),
      }),
    ).toEqual({ status: 'failed' })
  })

  test('behavior: a late attempt is followed a minute later, not at once', () => {
    expect(
      decideRetry({
        attempts: 2,
        firstFailedAt: first,
        validBefore: farAway,
        leadMs,
        now: later(50 * minute),
      }),
    ).toEqual({ status: 'retry', at: later(51 * minute) })
  })

  test.each([
    ['falls after expiry', 4, 15 * minute, 50 * minute, { status: 'retry', at: later(45 * minute) }],
    ['the lead has begun', 4, 46 * minute, 50 * minute, { status: 'retry', at: later(47 * minute) }],
    ['a minute is left', 4, 49 * minute, 50 * minute, { status: 'failed' }],
    ['it has expired', 1, 51 * minute, 50 * minute, { status: 'failed' }],
  ] as const)(
    'behavior: brought forward before validBefore: %s',
    (_name, attempts, nowMs, expiryMs, expected) => {
      expect(
        decideRetry({
          attempts,
          firstFailedAt: first,
          validBefore: BigInt(later(expiryMs).getTime() / 1000),
          leadMs,
          now: later(nowMs),
        }),
      ).toEqual(expected)
    },
  )
})
