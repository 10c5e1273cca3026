type Rescan = {
  /** The read begins after this block. */
  after: bigint
  /** Call this once the read has succeeded. Until then, each further read begins at the same block. */
  done: () => void
}

export type Rescans = {
  /** The highest block that a reorg may have replaced. At the start, any block may have been replaced. */
  replacedUpTo: bigint
  /** The index's head when all blocks that weren't final were last read again. */
  rescannedAt: bigint | null
}

/**
 * Returns the block after which to read the index. Usually this is `seen`, the last block that was read. All blocks that aren't final are read again
 * in two cases:
 *
 * - after a reorg, until the index has passed the replaced blocks, because the index may notice the reorg later than we do
 * - after every third of the time to finality, so that each block is read again before it becomes final
 *
 * @param head the index's head.
 */
export function planRescan(rescans: Rescans, seen: bigint, head: bigint, finalityBlocks: bigint): Rescan {
  const last = rescans.rescannedAt
  const isNew = last !== null && last > rescans.replacedUpTo && last <= head
  if (isNew && head - last < finalityBlocks / 3n) return { after: seen, done: () => {} }
  const from = last ?? seen - finalityBlocks
  return {
    after: (from < seen ? from : seen) - finalityBlocks,
    done: () => {
      rescans.rescannedAt = head
    },
  }
}
