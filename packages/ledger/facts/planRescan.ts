type Rescan = {
  /** The look begins after this block. */
  after: bigint
  /** Call it after the look, so that the next one begins with new blocks. */
  done: () => void
}

export type Rescans = {
  /** Blocks up to here may have been replaced: at first, all of them. */
  replacedUpTo: bigint
  /** The index's head when all blocks that weren't final were last read again. */
  rescannedAt: bigint | null
}

/**
 * Says after which block to look for what the chain did: as a rule, after those that were `seen`. If the chain was seen to lose a
 * block, all that aren't final are read again until the index is past it, since the index may follow later. All are also
 * read again every third of the time to finality, so each block that becomes final is read once more.
 *
 * @param head The index's head.
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
