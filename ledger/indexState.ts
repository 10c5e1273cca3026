import type { IndexedHead } from './indexedHead.ts'

/** `behind` never means "unsettled": nothing is claimed, failed or notified on its word. */
export type IndexState =
  | { status: 'current'; head: IndexedHead }
  | { status: 'behind'; reason: 'missing' | 'below_acted_block' | 'stale'; head: IndexedHead | null }

/**
 * Whether the index may be believed.
 *
 * @param actedBlock The highest block that a decision of ours relied on.
 * @param chainHead The chain's own latest block.
 * @param maxLagBlocks How far it may be behind.
 */
export function judgeIndex(
  indexed: IndexedHead | null,
  actedBlock: bigint,
  chainHead: bigint,
  maxLagBlocks: bigint,
): IndexState {
  if (indexed === null) return { status: 'behind', reason: 'missing', head: null }
  if (indexed.blockNumber < actedBlock) {
    return { status: 'behind', reason: 'below_acted_block', head: indexed }
  }
  if (chainHead - indexed.blockNumber > maxLagBlocks) {
    return { status: 'behind', reason: 'stale', head: indexed }
  }
  return { status: 'current', head: indexed }
}
