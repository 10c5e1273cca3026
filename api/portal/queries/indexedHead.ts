import postgres from 'postgres'
import type { Database } from '#ledger/database'
import { type IndexedHead, readActedBlock, readIndexedHead } from '#ledger/indexedHead'
import { Refusal } from '../../refusal.ts'

// undefined_table, invalid_schema_name, undefined_column: Ponder has not deployed its views, or is about to.
const missingCodes = new Set(['42P01', '3F000', '42703'])

/** Whether a query failed because Ponder's views are not there. */
export function isMissingIndex(error: unknown): boolean {
  return error instanceof postgres.PostgresError && missingCodes.has(error.code)
}

/**
 * How far the index has come, for an answer that depends on it.
 *
 * @throws {Refusal} `index_behind` where there is none, or where it is below the highest block that a decision of the
 *   keeper relied on: it's being rebuilt, and what it doesn't show yet is not unsettled.
 */
export async function requireIndexedHead(sql: Database, chainId: number): Promise<IndexedHead> {
  const [head, acted] = await Promise.all([readIndexedHead(sql, chainId), readActedBlock(sql, chainId)])
  if (head === null) throw new Refusal('index_behind', 'The index has not been built yet')
  if (head.blockNumber < acted) {
    throw new Refusal('index_behind', undefined, {
      details: { indexedBlock: Number(head.blockNumber), actedBlock: Number(acted) },
    })
  }
  return head
}

/** Runs a query over the index; its absence becomes `index_behind`. */
export async function fromIndex<T>(query: Promise<T>): Promise<T> {
  try {
    return await query
  } catch (error) {
    if (isMissingIndex(error))
      throw new Refusal('index_behind', 'The index is being deployed', { cause: error })
    throw error
  }
}
