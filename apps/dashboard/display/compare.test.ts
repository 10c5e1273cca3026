import { afterAll, beforeAll, expect, test, vi } from 'vitest'
import { writeBefore, writeChange } from './compare.ts'

beforeAll(() => vi.stubGlobal('navigator', { languages: ['en-US'] }))
afterAll(() => vi.unstubAllGlobals())

test.each([
  [120n, 100n, '+20%'],
  [95, 100, '-5%'],
  [100, 100, '0%'],
  [2n ** 90n, 3n * 2n ** 88n, '+33.3%'],
  [0, 7, '-100%'],
  [30_000, 1, '+2,999,900%'],
  [5, 0, undefined],
  [0n, 0n, undefined],
])('args: formats the change to %s from %s as %s', (now, before, change) => {
  expect(writeChange(now, before)).toBe(change)
})

test('default: names the previous period in a note, and the change if there is one', () => {
  expect(writeBefore([12, 10], String, '30 days')).toBe('10 in the 30 days before (+20%)')
  expect(writeBefore([1n, 0n], String, '12 months')).toBe('0 in the 12 months before')
})
