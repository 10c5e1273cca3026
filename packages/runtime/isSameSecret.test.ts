import { expect, test } from 'vitest'
import { isSameSecret } from './isSameSecret.ts'

test.each([
  ['secret', true],
  ['Secret', false],
  ['secret ', false],
  ['secre', false],
  ['', false],
])('default: %j is the secret: %s', (presented, expected) => {
  expect(isSameSecret(presented, 'secret')).toBe(expected)
})
