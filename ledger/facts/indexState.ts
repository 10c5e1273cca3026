import type { ServedNetwork } from '#chain/servedNetworks'
import type { Database } from '../store/database.ts'
import { type IndexedHead, readIndexedHead } from './indexedHead.ts'
import { readToldBlock } from './record.ts'

/** `behind` never means "unsettled": nothing is claimed, failed or notified on its word. */
export type IndexState =
  | { status: 'current'; head: IndexedHead }
  | { status: 'behind'; reason: 'missing' | 'below_acted_block' | 'stale'; head: IndexedHead | null }

/**
 * Whether the index may be believed.
 *
 * @param toldBlock The highest block of which providers were told something.
 * @param chainHead The chain's own latest block.
 * @param maxLagBlocks How far it may be behind.
 */
export function judgeIndex(
  indexed: IndexedHead | null,
  toldBlock: bigint,
  chainHead: bigint,
  maxLagBlocks: bigint,
): IndexState {
  if (indexed === null) return { status: 'behind', reason: 'missing', head: null }
  if (indexed.blockNumber < toldBlock) {
    return { status: 'behind', reason: 'below_acted_block', head: indexed }
  }
  if (chainHead - indexed.blockNumber > maxLagBlocks) {
    return { status: 'behind', reason: 'stale', head: indexed }
  }
  return { status: 'current', head: indexed }
}

/** How long what a process does for a network shares one read of its head. */
const headAgeMs = 2_000

/** Whether the index of a network may be believed now. */
export async function readIndexState(
  sql: Database,
  { network: { chainId }, client }: Pick<ServedNetwork, 'network' | 'client'>,
  maxLagBlocks: bigint,
): Promise<IndexState> {
  // The index first: read in the other order, a block in between would make it seem further behind than it is.
  const indexed = await readIndexedHead(sql, chainId)
  const [told, chainHead] = await Promise.all([
    readToldBlock(sql, chainId),
    client.getBlockNumber({ cacheTime: headAgeMs }),
  ])
  return judgeIndex(indexed, told, chainHead, maxLagBlocks)
}
