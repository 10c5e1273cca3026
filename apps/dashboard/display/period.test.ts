import { expect, test } from 'vitest'
import { choosePeriod, namePeriod, type Period, previousOf } from './period.ts'

const now = new Date('2026-03-10T10:20:30Z')
const shape = (period: Period | string) => {
  if (typeof period === 'string') return period
  const { interval, starts, from, to } = period
  const before = previousOf(period)
  return [
    interval,
    starts.length,
    ...[from, to, before.from, before.to].map((time) => time.toISOString().slice(0, 13)),
  ]
}

test.each([
  [{}, ['day', 30, '2026-02-09T00', '2026-03-10T10', '2026-01-10T00', '2026-02-09T00']],
  [{ period: 'hours' }, ['hour', 48, '2026-03-08T11', '2026-03-10T10', '2026-03-06T11', '2026-03-08T11']],
  [{ period: 'months' }, ['month', 12, '2025-04-01T00', '2026-03-10T10', '2024-04-01T00', '2025-04-01T00']],
  [
    { from: '2026-02-01', to: '2026-02-28' },
    ['day', 28, '2026-02-01T00', '2026-03-01T00', '2026-01-04T00', '2026-02-01T00'],
  ],
  [
    { from: '2026-03-09', to: '2026-03-10' },
    ['hour', 48, '2026-03-09T00', '2026-03-11T00', '2026-03-07T00', '2026-03-09T00'],
  ],
  [
    { from: '2024-06-17', to: '2026-01-02' },
    ['month', 20, '2024-06-01T00', '2026-02-01T00', '2022-10-01T00', '2024-06-01T00'],
  ],
  // Future days are not shown.
  [
    { from: '2026-03-01', to: '2027-01-01' },
    ['day', 10, '2026-03-01T00', '2026-03-11T00', '2026-02-19T00', '2026-03-01T00'],
  ],
  [
    { period: 'constructor' },
    ['day', 30, '2026-02-09T00', '2026-03-10T10', '2026-01-10T00', '2026-02-09T00'],
  ],
])('behavior: returns the period that the link %j names, and the previous period', (search, expected) => {
  expect(shape(choosePeriod(search, now))).toEqual(expected)
})

test.each([
  [{ from: '2026-03-05', to: '2026-03-04' }, /must not be after/],
  [{ from: '2026-04-01' }, /after today/],
  [{ from: 'yesterday' }, /Expected dates/],
  [{ from: '2026-02-30x' }, /Expected dates/],
  [{ from: '1970-01-01' }, /ten years/],
])('behavior: rejects %j with a reason', (search, reason) => {
  expect(choosePeriod(search, now)).toMatch(reason)
})

test.each([
  [
    { from: '2026-03-09', to: '2026-03-10' },
    ['day', 2, '2026-03-09T00', '2026-03-11T00', '2026-03-07T00', '2026-03-09T00'],
  ],
  [{ period: 'hours' }, ['day', 30, '2026-02-09T00', '2026-03-10T10', '2026-01-10T00', '2026-02-09T00']],
])(
  'behavior: divides the period of %j into whole days if figures are counted by days',
  (search, expected) => {
    expect(shape(choosePeriod(search, now, true))).toEqual(expected)
  },
)

test.each([
  [{}, 'the last 30 days'],
  [{ from: '2026-03-09', to: '2026-03-10' }, 'these 2 days'],
  [{ from: '2026-03-09', to: '2026-03-09' }, 'this day'],
])('behavior: within a sentence, the name of the period %j is "%s"', (search, name) => {
  const period = choosePeriod(search, now)
  expect(typeof period === 'string' ? period : namePeriod(period)).toBe(name)
})
