import { expect, test } from 'vitest'
import { refusalSeries } from './figures.ts'

const row = (startsAt: string, refused: Record<string, number>) => ({
  startsAt: `${startsAt}T00:00:00.000Z`,
  endpointId: 'ep_1',
  calls: 0,
  challenged: 0,
  paid: 0,
  refused,
})
const starts = ['2026-11-20', '2026-11-21', '2026-11-22'].map((day) => new Date(`${day}T00:00:00Z`))

test('default: counts refusals for each of the two most frequent codes, and for all other codes together', () => {
  const { codes, totals, points } = refusalSeries(
    [
      row('2026-11-22', { insufficient_balance: 5, payment_replayed: 1, macaroon_expired: 2 }),
      row('2026-11-20', { insufficient_balance: 1, macaroon_expired: 1, tab_closed: 1 }),
    ],
    starts,
  )
  expect(codes).toEqual(['insufficient_balance', 'macaroon_expired'])
  expect(totals).toEqual([
    ['insufficient_balance', 6],
    ['macaroon_expired', 3],
    ['payment_replayed', 1],
    ['tab_closed', 1],
  ])
  expect(points.map(({ byCode, others, total }) => [...byCode, others, total])).toEqual([
    [1, 1, 1, 3],
    [0, 0, 0, 0],
    [5, 2, 1, 8],
  ])
})

test('behavior: returns an empty point for every interval if there are no refusals', () => {
  expect(refusalSeries([], starts)).toEqual({
    codes: [],
    totals: [],
    points: starts.map((startsAt) => ({ startsAt, byCode: [], others: 0, total: 0 })),
  })
})
