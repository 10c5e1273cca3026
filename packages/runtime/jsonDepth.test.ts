import { expect, test } from 'vitest'
import { isDeeperThan } from './jsonDepth.ts'

test.each([
  ['text', 'deep', 0, false],
  ['null', null, 0, false],
  ['an empty object', {}, 0, true],
  ['an empty object', {}, 1, false],
  ['objects and arrays in each other', { a: [{ b: 1 }] }, 2, true],
  ['objects and arrays in each other', { a: [{ b: 1 }] }, 3, false],
  ['many values of one level', { a: [1, 2], b: [3], c: 'd' }, 2, false],
])('default: %s: %j is deeper than %i levels: %s', (_, value, levels, expected) => {
  expect(isDeeperThan(levels, value)).toBe(expected)
})

test('behavior: more levels than a recursion can follow', () => {
  const value: unknown = JSON.parse('['.repeat(30_000) + ']'.repeat(30_000))
  expect(() => JSON.stringify(value)).toThrow(RangeError)
  expect(isDeeperThan(64, value)).toBe(true)
})
