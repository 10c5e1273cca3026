import type { Address } from 'viem'

/** Number of intervals between blocks that are remembered. */
const remembered = 8
/** Longest time in ms that a batch gathers on a chain with slow blocks, because a caller waits for it. */
const longestMs = 1_000

/**
 * Decides how long a wallet gathers callers of `POST /settle` after its last batch was mined.
 *
 * A wallet has one transaction in flight, and the next block is a whole interval away when the last one was just mined. A batch that
 * closes then gains nothing, and every caller who comes during the interval waits for that block and for the one after it. So a
 * caller with a large backlog would delay all others by a block. Closing the batch after half of the interval lets the others in,
 * and leaves the other half to simulate and send it.
 *
 * @param clock milliseconds that never go back.
 */
export function createBlockPace(clock: () => number = () => performance.now()) {
  const lastMined = new Map<Address, { block: bigint; atMs: number }>()
  const intervals: number[] = []
  return {
    /** Records that a batch of this wallet was just found mined. */
    noteMined(wallet: Address, block: bigint): void {
      const atMs = clock()
      const before = lastMined.get(wallet)
      lastMined.set(wallet, { block, atMs })
      if (before === undefined || block <= before.block) return
      intervals.push((atMs - before.atMs) / Number(block - before.block))
      if (intervals.length > remembered) intervals.shift()
    },
    /** Whether this wallet's next batch is still open to callers who come now. */
    isGathering(wallet: Address): boolean {
      const mined = lastMined.get(wallet)
      if (mined === undefined || intervals.length === 0) return false
      // The shortest one: an interval during which nothing was sent may have lasted longer on a chain that mines on demand.
      const gatherMs = Math.min(Math.min(...intervals) / 2, longestMs)
      return clock() < mined.atMs + gatherMs
    },
  }
}
