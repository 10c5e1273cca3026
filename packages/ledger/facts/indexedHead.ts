import type { Database } from '../store/database.ts'
import { type NullableRecordHead, type RecordHead, recordHeadColumns, toRecordHead } from './record.ts'

type IndexedHead = { blockNumber: bigint /** Unix seconds. */; blockTime: bigint }

// Ponder's checkpoint has the block time (10 digits), chain id (16), block number (16), and the order of events in a block.
const timeDigits = 10
const chainDigits = 16
const blockDigits = 16

/** Parses Ponder's checkpoint. */
function parseCheckpoint(checkpoint: string): IndexedHead {
  const from = timeDigits + chainDigits
  return {
    blockTime: BigInt(checkpoint.slice(0, timeDigits)),
    blockNumber: BigInt(checkpoint.slice(from, from + blockDigits)),
  }
}

const undefinedTable = '42P01'
const invalidSchema = '3F000'

/** Reads the index's head; null if there is no index, because it never started or is being rebuilt. */
export async function readIndexedHead(sql: Database, chainId: number): Promise<IndexedHead | null> {
  const rows = await orMissing(sql<{ checkpoint: string | null }[]>`
    select latest_checkpoint as checkpoint from indexer._ponder_checkpoint
    where chain_id = ${chainId}`)
  const checkpoint = rows?.[0]?.checkpoint
  return checkpoint ? parseCheckpoint(checkpoint) : null
}

/** Reads, in one statement, the index's head and the last block that was read into the record (`known`); null without an index. */
export async function readHeads(
  sql: Database,
  chainId: number,
): Promise<{ head: IndexedHead; known: RecordHead | null } | null> {
  const rows = await orMissing(sql<({ checkpoint: string | null } & NullableRecordHead)[]>`
    select index.latest_checkpoint as checkpoint, ${recordHeadColumns(sql)}
    from indexer._ponder_checkpoint index left join record_head head on head.chain_id = index.chain_id
    where index.chain_id = ${chainId}`)
  const [row] = rows ?? []
  if (!row?.checkpoint) return null
  return { head: parseCheckpoint(row.checkpoint), known: toRecordHead(row) }
}

/** Counts the logs that the index could not read, by reason; null without an index. */
export async function countIndexGaps(sql: Database, chainId: number): Promise<Map<string, number> | null> {
  const rows = await orMissing(sql<{ reason: string; logs: number }[]>`
    select reason, count(*)::integer as logs from indexer.index_gap
    where chain_id = ${chainId} group by reason`)
  return rows && new Map(rows.map(({ reason, logs }) => [reason, logs]))
}

/** Runs a query over the index; null if its views are missing. */
async function orMissing<T>(query: Promise<T>): Promise<T | null> {
  try {
    return await query
  } catch (error) {
    const code = error instanceof Error && 'code' in error ? error.code : undefined
    if (code === undefinedTable || code === invalidSchema) return null
    throw error
  }
}
