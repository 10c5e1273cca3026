import type { ServedNetwork } from '@tollkeeper/chain/servedNetworks'
import type { Database } from '../store/database.ts'
import { type RecordHead, readRecordHead, readToldBlock } from './record.ts'

/** `behind` never means "unsettled": while behind, nothing is claimed, failed or told. */
export type RecordState =
  | { status: 'current'; head: RecordHead }
  | { status: 'behind'; reason: 'missing' | 'below_acted_block' | 'stale'; head: RecordHead | null }

/**
 * How many blocks the record may be behind the chain: 40 seconds on Base and Polygon. An index that keeps up is two or three behind, so a
 * greater lag means that it has stopped or is being rebuilt.
 */
export const maxIndexLagBlocks = 20n

/**
 * Whether the record knows what the chain did.
 *
 * @param toldBlock The highest block that providers were told of.
 * @param chainHead The chain's own latest block.
 * @param maxLagBlocks How many blocks it may be behind.
 */
export function judgeRecord(
  head: RecordHead | null,
  toldBlock: bigint,
  chainHead: bigint,
  maxLagBlocks: bigint,
): RecordState {
  if (head === null) return { status: 'behind', reason: 'missing', head: null }
  if (head.readNumber < toldBlock) return { status: 'behind', reason: 'below_acted_block', head }
  if (chainHead - head.readNumber > maxLagBlocks) return { status: 'behind', reason: 'stale', head }
  return { status: 'current', head }
}

/** How long the loops of a process share one read of a network's head. */
const headAgeMs = 2_000

/** Reads whether a network's record is up to date. */
export async function readRecordState(
  sql: Database,
  { network: { chainId }, client }: Pick<ServedNetwork, 'network' | 'client'>,
  maxLagBlocks: bigint,
): Promise<RecordState> {
  // The record is read first: the other way round, a block in between would make it look further behind than it is.
  const head = await readRecordHead(sql, chainId)
  const [told, chainHead] = await Promise.all([
    readToldBlock(sql, chainId),
    client.getBlockNumber({ cacheTime: headAgeMs }),
  ])
  return judgeRecord(head, told, chainHead, maxLagBlocks)
}
