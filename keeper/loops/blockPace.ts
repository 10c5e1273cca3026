import type { Address } from 'viem'

/** Number of remembered intervals between blocks. */
const remembered = 8
/** Maximum time in ms for which a batch waits for more callers, even on a chain with slow blocks, because its first callers wait as well. */
const longestMs = 1_000

/**
 * Decides how long a wallet gathers callers of `POST /settle` after its last batch was mined.
 *
 * A wallet has at most one batch for these callers in flight. Right after the batch was mined, the next block is a whole interval away. If the next
 * batch closed at once, it would settle no sooner, but callers who come during the interval would have to wait for the block after the next. So a
 * caller with a large backlog would delay all other callers by a block. If the batch closes after half of the interval, the other callers can join
 * it, and the second half suffices to simulate and send it.
 *
 * @param clock returns monotonic milliseconds
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
    /** Whether this wallet's next batch still waits for more callers. */
    isGathering(wallet: Address): boolean {
      const mined = lastMined.get(wallet)
      if (mined === undefined || intervals.length === 0) return false
      // Uses the shortest interval, because a chain that mines on demand has long intervals while nothing is sent.
      const gatherMs = Math.min(Math.min(...intervals) / 2, longestMs)
      return clock() < mined.atMs + gatherMs
    },
  }
}
