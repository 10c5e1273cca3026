type Rescan = {
  /** Blocks after this one are looked at. */
  after: bigint
  /** Says that they were, so that the next look is at new ones only. */
  done: () => void
}

export type Rescans = {
  /** Up to here blocks may have been replaced: all of them, at first. */
  replacedUpTo: bigint
  /** The index's head when all that isn't final was last looked through. */
  rescannedAt: bigint | null
}

/**
 * Says from which block to look for what the chain did. As a rule that is after what was `seen` before. Blocks that aren't
 * final are read again where the chain was seen to lose one, until the index is past that, since it may follow later. Whatever
 * was seen is read again every third of the time to finality; so every block is that became final since the last time.
 *
 * @param head the index's.
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
