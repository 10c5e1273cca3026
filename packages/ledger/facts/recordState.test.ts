import { expect, test } from 'vitest'
import { judgeRecord } from './recordState.ts'

// A gap in between stops nothing: a keeper simulates what it settles.
const at = (readNumber: bigint) => ({ blockNumber: 0n, readNumber, blockTime: 1_800_000_000n })

test.each([
  ['missing', null, 0n, 100n, 'missing'],
  ['at the head', at(100n), 90n, 100n, 'current'],
  ['as far behind as allowed', at(90n), 90n, 100n, 'current'],
  ['a block further behind', at(89n), 80n, 100n, 'stale'],
  ['below what was acted on', at(95n), 96n, 100n, 'below_acted_block'],
  ['ahead of the node that was asked', at(101n), 90n, 100n, 'current'],
] as const)('args: %s', (_name, recorded, told, head, expected) => {
  const state = judgeRecord(recorded, told, head, 10n)
  expect(state.status === 'current' ? 'current' : state.reason).toBe(expected)
})
