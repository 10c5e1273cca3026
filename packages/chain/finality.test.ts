import { expect, test } from 'vitest'
import { finalityOf } from './finality.ts'

test.each([
  ['ethereum', 1, 65n],
  ['polygon', 137, 200n],
  ['base', 8453, 30n],
])('default: on %s a reorg is deep from Ponder’s own number of blocks on', (_, chainId, blocks) => {
  expect(finalityOf(chainId)).toBe(blocks)
})
