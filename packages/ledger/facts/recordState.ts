import type { ServedNetwork } from '@tollkeeper/chain/servedNetworks'
import type { Network } from '@tollkeeper/sdk/protocol/networks'
import type { Database } from '../store/database.ts'
import { type RecordHead, readRecordProgress } from './record.ts'

/** `behind` never means "unsettled": while the record is behind, nothing is claimed, failed or notified. */
export type RecordState =
  | { status: 'current'; head: RecordHead }
  | { status: 'behind'; reason: 'missing' | 'below_acted_block' | 'stale'; head: RecordHead | null }

/**
 * Maximum number of blocks that the record may be behind the chain: 40 seconds on Base and Polygon. A running index is two or three blocks
 * behind, so a greater lag means that it has stopped or is being rebuilt.
 */
export const maxIndexLagBlocks = 20n

/** The block time in ms that {@link maxIndexLagBlocks} is meant for. */
const usualBlockTimeMs = 2_000

/**
 * Returns the maximum number of blocks that a network's record may be behind: `blocks` or, if the network's blocks are faster than Base's, as
 * many as the network produces while Base produces `blocks`.
 */
export function indexLagLimit(
  { blockTimeMs }: Pick<Network, 'blockTimeMs'>,
  blocks = maxIndexLagBlocks,
): bigint {
  if (blockTimeMs >= usualBlockTimeMs) return blocks
  return (blocks * BigInt(usualBlockTimeMs)) / BigInt(blockTimeMs)
}

/**
 * Judges whether the record is up to date.
 *
 * @param toldBlock the highest block that providers were notified of.
 * @param chainHead the chain's latest block.
 * @param maxLagBlocks maximum number of blocks that it may be behind: {@link indexLagLimit}.
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

/** Time in ms for which the loops of a process share one read of a network's head. */
const headAgeMs = 2_000

/**
 * Reads whether a network's record is up to date.
 *
 * @param maxLagBlocks the maximum for a network with a block every two seconds.
 */
export async function readRecordState(
  sql: Database,
  { network, client }: Pick<ServedNetwork, 'network' | 'client'>,
  maxLagBlocks: bigint,
): Promise<RecordState> {
  const { chainId } = network
  // Read the record first: in the other order, a block that is mined in between would make the record look further behind than it is.
  const { head, toldBlock } = await readRecordProgress(sql, chainId)
  const chainHead = await client.getBlockNumber({ cacheTime: headAgeMs })
  return judgeRecord(head, toldBlock, chainHead, indexLagLimit(network, maxLagBlocks))
}
