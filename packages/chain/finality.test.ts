import { expect, test } from 'vitest'
import { finalityOf } from './finality.ts'

test.each([
  ['ethereum', 1, 65n],
  ['polygon', 137, 200n],
  ['base', 8453, 30n],
])('default: treats reorgs on %s as deep at the same depth as Ponder', (_, chainId, blocks) => {
  expect(finalityOf(chainId)).toBe(blocks)
})
