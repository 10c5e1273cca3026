import { expect, test } from 'vitest'
import { planRescan, type Rescans } from './planRescan.ts'

const finalityBlocks = 30n

test('default: reads only new blocks in most steps; in the first step and after each third of the finality depth, reads all blocks that aren’t final', () => {
  const rescans: Rescans = { replacedUpTo: 0n, rescannedAt: null }
  const look = (seen: bigint, head: bigint) => planRescan(rescans, seen, head, finalityBlocks)
  const first = look(90n, 100n)
  expect(first.after).toBe(30n)
  // The first read was interrupted, so the next read begins at the same block.
  expect(look(90n, 100n).after).toBe(30n)
  first.done()
  expect(look(100n, 101n).after).toBe(100n)
  look(100n, 101n).done()
  expect(look(108n, 109n).after).toBe(108n)
  // When the head was 100, blocks above 70 weren't final. This read begins there, so each of these blocks is read again before it becomes final.
  expect(look(109n, 110n).after).toBe(70n)
  look(109n, 110n).done()
  expect(look(110n, 111n).after).toBe(110n)
})

test('behavior: after a reorg, reads all blocks that aren’t final until the index is past the replaced blocks', () => {
  const rescans: Rescans = { replacedUpTo: 0n, rescannedAt: null }
  const look = (seen: bigint, head: bigint) => {
    const { after, done } = planRescan(rescans, seen, head, finalityBlocks)
    done()
    return after
  }
  look(100n, 100n)
  rescans.replacedUpTo = 103n
  expect(look(101n, 102n)).toBe(70n)
  expect(look(102n, 103n)).toBe(72n)
  expect(look(103n, 104n)).toBe(73n)
  expect(look(104n, 105n)).toBe(104n)
  // The index's head moved back.
  expect(look(103n, 103n)).toBe(73n)
})
