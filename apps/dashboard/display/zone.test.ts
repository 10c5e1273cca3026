import { afterAll, expect, test } from 'vitest'
import { nextDay, readZone, startOfDay } from './zone.ts'

const before = process.env.TZ
process.env.TZ = 'Europe/Berlin'
afterAll(() => {
  if (before === undefined) delete process.env.TZ
  else process.env.TZ = before
})

test('behavior: starts a day at midnight in the chosen zone', () => {
  expect(startOfDay('2026-11-29', 'utc')).toBe('2026-11-29T00:00:00.000Z')
  expect(startOfDay('2026-11-29', 'local')).toBe('2026-11-28T23:00:00.000Z')
})

test('behavior: starts the next day after 23 or 25 hours when the clocks change', () => {
  const hours = (date: string) =>
    (Date.parse(nextDay(date, 'local')) - Date.parse(startOfDay(date, 'local'))) / 3_600_000
  expect(hours('2026-03-29')).toBe(23)
  expect(hours('2026-10-25')).toBe(25)
  expect(nextDay('2026-12-31', 'utc')).toBe('2027-01-01T00:00:00.000Z')
})

test('behavior: uses the local zone if none is stored', () => {
  expect(readZone()).toBe('local')
})

test('behavior: leaves an invalid day unchanged, for the gateway to reject', () => {
  expect(startOfDay('tomorrow', 'utc')).toBe('tomorrow')
})
