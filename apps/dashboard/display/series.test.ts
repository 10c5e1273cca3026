import { expect, test } from 'vitest'
import type { RevenueRow } from '../gateway/answers.ts'
import { revenueSeries, startsOf } from './series.ts'

const now = new Date('2026-03-01T10:20:30Z')

test.each([
  ['hours', 48, '2026-02-27T11:00:00.000Z', '2026-03-01T10:00:00.000Z'],
  ['days', 30, '2026-01-31T00:00:00.000Z', '2026-03-01T00:00:00.000Z'],
  ['months', 12, '2025-04-01T00:00:00.000Z', '2026-03-01T00:00:00.000Z'],
] as const)('default: returns the intervals of the last %s', (range, count, first, last) => {
  const starts = startsOf(range, now).map((start) => start.toISOString())
  expect([starts.length, starts[0], starts.at(-1)]).toEqual([count, first, last])
})

test('default: returns a point at zero for an interval without payments', () => {
  const row = {
    startsAt: '2026-02-28T00:00:00.000Z',
    payments: 3,
    settled_usdc: '0.020000',
    outstanding_usdc: '0.010000',
    failed_usdc: '0.000001',
  } as RevenueRow
  const points = revenueSeries([row], startsOf('days', now).slice(-2))
  expect(points).toEqual([
    {
      startsAt: new Date(row.startsAt ?? ''),
      settled: 20_000n,
      outstanding: 10_000n,
      failed: 1n,
      payments: 3,
    },
    { startsAt: new Date('2026-03-01T00:00:00Z'), settled: 0n, outstanding: 0n, failed: 0n, payments: 0 },
  ])
})
