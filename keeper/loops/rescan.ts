import type { Context } from './context.ts'

type Rescan = {
  /** Blocks after this one are looked at. */
  after: bigint
  /** Says that they were, so that the next look is at new ones only. */
  done: () => void
}

/**
 * From where to look for what the chain did: after what was `seen` before, as a rule. Blocks that aren't final are looked
 * through again where the chain was seen to lose one, until the index is past that, since it may follow later; and
 * whatever was seen, in every third of the time to finality. So is every block that became final since the last time.
 *
 * @param head the index's.
 */
export function planRescan(
  { memory, finalityBlocks }: Pick<Context, 'memory' | 'finalityBlocks'>,
  what: keyof Context['memory']['rescannedAt'],
  seen: bigint,
  head: bigint,
): Rescan {
  const last = memory.rescannedAt[what]
  const isNew = last !== null && last > memory.replacedUpTo && last <= head
  if (isNew && head - last < finalityBlocks / 3n) return { after: seen, done: () => {} }
  const from = last ?? seen - finalityBlocks
  return {
    after: (from < seen ? from : seen) - finalityBlocks,
    done: () => {
      memory.rescannedAt[what] = head
    },
  }
}
