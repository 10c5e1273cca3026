import { expect, test } from 'vitest'
import { choosePeriod } from './period.ts'

const now = new Date('2026-11-21T13:30:00Z')
const at = (text: string) => new Date(text)

test('default: without `from` and `to`, returns the default period of each interval, up to now', () => {
  expect(choosePeriod('hour', {}, now)).toEqual({
    from: at('2026-11-19T14:00:00Z'),
    to: at('2026-11-21T14:00:00Z'),
  })
  expect(choosePeriod('day', {}, now)).toEqual({ from: at('2026-10-23'), to: at('2026-11-22') })
  expect(choosePeriod('month', {}, now)).toEqual({ from: at('2025-11-01'), to: at('2026-12-01') })
  expect(choosePeriod('total', {}, now).from).toEqual(at('1970-01-01'))
})

test('args: extends `from` and `to` to whole intervals', () => {
  const asked = { from: at('2026-11-20T10:20:00Z'), to: at('2026-11-21T10:00:00Z') }
  expect(choosePeriod('hour', asked, now)).toEqual({
    from: at('2026-11-20T10:00:00Z'),
    to: at('2026-11-21T10:00:00Z'),
  })
  expect(choosePeriod('day', asked, now)).toEqual({ from: at('2026-11-20'), to: at('2026-11-22') })
  expect(choosePeriod('month', asked, now)).toEqual({ from: at('2026-11-01'), to: at('2026-12-01') })
  expect(choosePeriod('day', { from: at('2025-11-21') }, now)).toMatchObject({ from: at('2025-11-21') })
})

test('error: rejects periods that are reversed, empty or too long', () => {
  const refused = (interval: 'hour' | 'day', from: string, to: string) =>
    expect(() => choosePeriod(interval, { from: at(from), to: at(to) }, now)).toThrow(
      expect.objectContaining({ code: 'invalid_date_range' }),
    )
  refused('day', '2026-11-21', '2026-11-20')
  refused('day', '2026-11-21', '2026-11-21')
  refused('hour', '2026-01-01', '2026-11-21')
  refused('day', '2020-01-01', '2026-11-21')
})
