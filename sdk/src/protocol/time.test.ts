import { expect, test } from 'vitest'
import { isoSeconds, isoTime, utcDay } from './time.ts'

test.each([0, 1_795_305_600, 1_795_305_600n, 2 ** 40 - 1])('default: formats %s as Date does', (seconds) => {
  const time = new Date(Number(seconds) * 1000)
  expect(isoTime(seconds)).toBe(time.toISOString())
  expect(isoSeconds(seconds)).toBe(`${time.toISOString().slice(0, -5)}Z`)
})

test('behavior: utcDay returns the day in UTC', () => {
  expect(utcDay(new Date('2026-11-21T23:59:59.999Z'))).toBe('2026-11-21')
  expect(utcDay(new Date('2026-11-21T23:00:00-02:00'))).toBe('2026-11-22')
})
