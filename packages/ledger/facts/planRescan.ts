type Rescan = {
  /** The read begins after this block. */
  after: bigint
  /** Call this after the read, so that the next one begins with new blocks. */
  done: () => void
}

export type Rescans = {
  /** The highest block that a reorg may have replaced. At the start, any block may have been replaced. */
  replacedUpTo: bigint
  /** The index's head when all blocks that weren't final were last read again. */
  rescannedAt: bigint | null
}

/**
 * Returns the block after which to read the index: usually after the blocks that were already `seen`. If a reorg replaced a block, all blocks that
 * aren't final are read again until the index is past that block, because the index may notice the reorg later than we do. They are also read again
 * every third of the time to finality, so that each block is read again before it becomes final.
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
