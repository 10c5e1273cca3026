import { describe, expect, test } from 'vitest'
import { mayRepeat, readRetryAfter, retryDelayMs } from './retries.ts'

describe('mayRepeat', () => {
  const failure = (code: string, status?: number) => ({ code, status, retryAfterSeconds: undefined })

  test.each([
    ['repeats any call after 429', failure('rate_limited', 429), true, true],
    ['repeats a read while a dependency is down', failure('dependency_unavailable', 503), true, false],
    ['repeats a read after an internal error', failure('internal_error', 500), true, false],
    ['repeats a read whose connection broke', failure('network_error'), true, false],
    ['does not repeat a refused call', failure('price_below_minimum', 422), false, false],
    [
      'does not repeat a call that is redirected to another origin',
      failure('gateway_redirects'),
      false,
      false,
    ],
    ['does not repeat a call that another server answered', failure('http_error', 200), false, false],
  ])('%s', (_, failed, ofRead, ofPost) => {
    expect([mayRepeat(failed, true), mayRepeat(failed, false)]).toEqual([ofRead, ofPost])
  })
})

describe('retryDelayMs', () => {
  const unasked = { retryAfterSeconds: undefined }

  test.each([
    [0, 0, 500],
    [1, 0, 1_000],
    [4, 0, 8_000],
    [20, 0, 8_000],
    [0, 1, 375],
  ])('waits longer with each attempt: attempt %i with the random number %d', (attempt, random, expected) => {
    expect(retryDelayMs(attempt, unasked, random)).toBe(expected)
  })

  test('waits as long as the gateway requests', () => {
    expect(retryDelayMs(5, { retryAfterSeconds: 60 }, 0.5)).toBe(60_000)
  })
})

describe('readRetryAfter', () => {
  const now = Date.UTC(2026, 10, 29, 9)

  test.each([
    ['30', 30],
    ['0', 0],
    ['Sun, 29 Nov 2026 09:00:10 GMT', 10],
    ['Sun, 29 Nov 2026 08:00:00 GMT', 0],
    ['soon', undefined],
    ['-1', undefined],
    [null, undefined],
  ])('reads %j as %s', (header, expected) => {
    expect(readRetryAfter(header, now)).toBe(expected)
  })
})
