import type { OpenLine } from '@tollkeeper/ledger/tabs/tabReads'
import { encodeSplit } from '@tollkeeper/sdk/protocol/splitter'
import { describe, expect, test } from 'vitest'
import { sumLines } from './openTabQueue.ts'

const now = new Date('2027-01-15T12:00:00Z')
const ago = (minutes: number) => new Date(now.getTime() - minutes * 60_000)
const split = encodeSplit({ provider: `0x${'a'.repeat(40)}`, providerShare: 9n, platformShare: 1n })
const line: OpenLine = {
  split,
  charged: 6_000n,
  tabCharged: 6_000n,
  requests: 3,
  firstAt: ago(20),
  openedAt: ago(30),
  expiresAt: now.getTime() / 1000 + 90_000,
}
const times = { least: 5_000n, timeMs: 3_600_000, now }

describe('sumLines', () => {
  test('default: both parts, the first purchase, and when the first tab has settled at the latest', () => {
    const lines = [line, { ...line, requests: 1, charged: 19n, firstAt: ago(50), openedAt: ago(55) }]
    const waiting = { paymentCount: 4, firstQueuedAt: ago(50), settlesAt: ago(-5) }
    expect(sumLines(lines, 0, times)).toEqual({ ...waiting, amount: 5_400n + 18n })
    expect(sumLines(lines, 1, times)).toEqual({ ...waiting, amount: 600n + 1n })
  })

  test.each([
    ['is too small to settle: when it runs out', { tabCharged: 4_999n }, new Date(line.expiresAt * 1000)],
    ['is due: now', { openedAt: ago(61) }, now],
    ['is open', {}, ago(-30)],
  ])('behavior: a tab that %s', (_, change, settlesAt) => {
    expect(sumLines([{ ...line, ...change }], 0, times)).toMatchObject({ settlesAt })
  })

  test('behavior: a tab that may stay open for a day has a day', () => {
    expect(sumLines([line], 0, { ...times, timeMs: 86_400_000 })).toMatchObject({
      settlesAt: ago(30 - 1_440),
    })
  })

  test('behavior: nothing waits on lines that are charged nothing, or too little for a fee', () => {
    expect(sumLines([{ ...line, charged: 0n, requests: 0, firstAt: null }], 0, times)).toBeNull()
    expect(sumLines([{ ...line, charged: 9n }], 1, times)).toBeNull()
    expect(sumLines([], 0, times)).toBeNull()
  })
})
