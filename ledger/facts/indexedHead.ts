import type { Database } from '../store/database.ts'

type IndexedHead = { blockNumber: bigint /** Unix seconds. */; blockTime: bigint }

// Ponder's checkpoint: block time (10 digits), chain id (16), block number (16), and what orders events inside a block.
const timeDigits = 10
const chainDigits = 16
const blockDigits = 16

/** Reads Ponder's checkpoint text. */
function parseCheckpoint(checkpoint: string): IndexedHead {
  const from = timeDigits + chainDigits
  return {
    blockTime: BigInt(checkpoint.slice(0, timeDigits)),
    blockNumber: BigInt(checkpoint.slice(from, from + blockDigits)),
  }
}

const undefinedTable = '42P01'
const invalidSchema = '3F000'

/** How far the index has come; null where there is none: it was never started, or is being rebuilt. */
export async function readIndexedHead(sql: Database, chainId: number): Promise<IndexedHead | null> {
  const rows = await orMissing(sql<{ checkpoint: string | null }[]>`
    select latest_checkpoint as checkpoint from indexer._ponder_checkpoint
    where chain_id = ${chainId}`)
  const checkpoint = rows?.[0]?.checkpoint
  return checkpoint ? parseCheckpoint(checkpoint) : null
}

/** How many logs the index could not read, by reason; null where there is no index. */
export async function countQuarantined(sql: Database, chainId: number): Promise<Map<string, number> | null> {
  const rows = await orMissing(sql<{ reason: string; logs: number }[]>`
    select reason, count(*)::integer as logs from indexer.quarantine
    where chain_id = ${chainId} group by reason`)
  return rows && new Map(rows.map(({ reason, logs }) => [reason, logs]))
}

/** A query over the index; null where its views are not there. */
async function orMissing<T>(query: Promise<T>): Promise<T | null> {
  try {
    return await query
  } catch (error) {
    const code = error instanceof Error && 'code' in error ? error.code : undefined
    if (code === undefinedTable || code === invalidSchema) return null
    throw error
  }
}
