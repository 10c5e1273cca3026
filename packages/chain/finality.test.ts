import { expect, test } from 'vitest'
import { finalityOf } from './finality.ts'

test.each([
  ['ethereum', 1, 65n],
  ['polygon', 137, 200n],
  ['base', 8453, 30n],
])('default: finalityOf returns the depth that Ponder uses for %s', (_, chainId, blocks) => {
  expect(finalityOf(chainId)).toBe(blocks)
})
