import { expect, test } from 'vitest'
import { decideRedelivery, maxAttempts } from './backoff.ts'

const middle = (attempts: number) => decideRedelivery({ attempts, random: 0.5 })

test('default: each pause is four times as long as the previous pause, up to a day', () => {
  expect([1, 2, 3, 4, 5, 6, 7, 8, 9].map(middle)).toEqual([
    5_000, 20_000, 80_000, 320_000, 1_280_000, 5_120_000, 20_480_000, 81_920_000, 86_400_000,
  ])
})

test('behavior: jitter shortens or lengthens a pause by up to a quarter', () => {
  expect(decideRedelivery({ attempts: 1, random: 0 })).toBe(3_750)
  expect(decideRedelivery({ attempts: 1, random: 0.999_999 })).toBe(6_250)
})

test('behavior: there is no attempt after the tenth', () => {
  expect(middle(maxAttempts - 1)).not.toBeNull()
  expect(middle(maxAttempts)).toBeNull()
  expect(middle(maxAttempts + 1)).toBeNull()
})

test('args: retryAfterMs: delays the next attempt by at least this time, but by at most a day', () => {
  expect(decideRedelivery({ attempts: 1, random: 0.5, retryAfterMs: 60_000 })).toBe(60_000)
  expect(decideRedelivery({ attempts: 4, random: 0.5, retryAfterMs: 60_000 })).toBe(320_000)
  // A receiver can't delay a message without limit.
  expect(decideRedelivery({ attempts: 1, random: 0.5, retryAfterMs: 10 ** 12 })).toBe(86_400_000)
})
