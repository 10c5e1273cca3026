import { expect, test } from 'vitest'
import { findUnstorable } from './storableJson.ts'

test.each<[unknown, number]>([
  ['deep', 0],
  [null, 0],
  [{}, 1],
  [{ a: [{ b: 1 }] }, 3],
  [{ a: [1, 2], b: [3], c: 'd' }, 2],
  ['🌊 and 1e308 as text', 1],
  [[0, -1.5, 123_456_789_012], 1],
])('default: accepts %j with a limit of %i levels', (value, levels) => {
  expect(findUnstorable(value, levels)).toBeNull()
})

test.each<[unknown, number, RegExp]>([
  [{}, 0, /at most 0 levels/],
  [{ a: [{ b: 1 }] }, 2, /at most 2 levels/],
  [{ a: ['\0'] }, 5, /U\+0000/],
  [{ '\0': 1 }, 5, /U\+0000/],
  [['\ud800'], 5, /incomplete characters/],
  [{ '\udfff': 1 }, 5, /incomplete characters/],
  [[1e308], 5, /exponent/],
  [{ a: { b: 1e-7 } }, 5, /exponent/],
])('error: rejects %j with a limit of %i levels: %s', (value, levels, reason) => {
  expect(findUnstorable(value, levels)).toMatch(reason)
})

test('behavior: handles more levels than a recursive function could', () => {
  const value: unknown = JSON.parse('['.repeat(30_000) + ']'.repeat(30_000))
  expect(() => JSON.stringify(value)).toThrow(RangeError)
  expect(findUnstorable(value, 64)).toMatch(/levels/)
})
