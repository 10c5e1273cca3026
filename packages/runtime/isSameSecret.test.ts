import { expect, test } from 'vitest'
import { isSameSecret } from './isSameSecret.ts'

test.each([
  ['secret', true],
  ['Secret', false],
  ['secret ', false],
  ['secre', false],
  ['', false],
])('default: compared with “secret”, %j gives %s', (presented, expected) => {
  expect(isSameSecret(presented, 'secret')).toBe(expected)
})
