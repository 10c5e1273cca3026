import { afterEach, beforeEach, describe, expect, test, vi } from 'vitest'
import { writeCount, writeRate, writeShare, writeTime, writeUsdc } from './format.ts'
import { readDecimal, writeInput } from './locale.ts'

const speak = (...languages: string[]) => vi.stubGlobal('navigator', { languages })
afterEach(() => vi.unstubAllGlobals())

describe('in German', () => {
  beforeEach(() => speak('de-DE', 'en'))

  test('behavior: writes numbers with a decimal comma', () => {
    expect(writeUsdc(1_234_500_000n)).toBe('1.234,50')
    expect(writeCount(12_345)).toBe('12.345')
    expect(writeShare(9_999, 10_000)).toBe('99,9\u00a0%')
    expect(writeRate('0.0345')).toBe('3,45\u00a0%')
    expect(writeInput('0.05')).toBe('0,05')
  })

  test.each([
    ['0,05', '0.05'],
    ['0.05', '0.05'],
    [',5', '0.5'],
    ['1.234,5', '1234.5'],
    ['1.234.567', '1234567'],
    ['1 234,5', '1234.5'],
    ['12', '12'],
    ['0.005', '0.005'],
    ['1,250', '1.250'],
    ['ten', 'ten'],
    ['1,2,3', '1,2,3'],
  ])('behavior: reads the typed decimal %s as %s', (typed, decimal) => {
    expect(readDecimal(typed)).toBe(decimal)
  })

  test('behavior: rejects 1.250, which could be 1250 or 1.25', () => {
    expect(readDecimal('1.250')).toBeNull()
  })
})

test('behavior: reads a decimal comma in English, but rejects 1,250, which could be 1250 or 1.25', () => {
  speak('en-US')
  expect(readDecimal('0,05')).toBe('0.05')
  expect(readDecimal('1,234.5')).toBe('1234.5')
  expect(readDecimal('1.250')).toBe('1.250')
  expect(readDecimal('1,250')).toBeNull()
})

test('behavior: writes times in the chosen zone and the browser’s language', () => {
  speak('en-GB')
  vi.stubGlobal('localStorage', { getItem: () => 'utc' })
  expect(writeTime('2026-11-29T13:05:07Z')).toBe('29 Nov 2026, 13:05:07 UTC')
})

test('behavior: ignores a language that isn’t a valid tag', () => {
  speak('en_US@posix')
  expect(writeCount(1_000).length).toBe(5)
})
