import postgres from 'postgres'
import { providerA, type TestIndex } from './harness.ts'

// Functions for tests that read an index through its views.

export async function readBatches({ sql }: TestIndex) {
  return sql`select chain_id, sequence, provider_total from indexer.batch order by chain_id, sequence`
}

/**
 * Ignores deadlocks and lock timeouts, so that the reader reads again. They happen because Ponder locks all tables to drop its triggers, at its start
 * and in a reorg.
 */
function ignoreDeadlock(error: { code?: string }): never[] {
  if (error.code === '40P01' || error.code === '55P03') return []
  throw error
}

/** Repeatedly reads the newest indexed block and the number of batches. One statement reads both, so they come from the same snapshot. */
export async function watchViews(databaseUrl: string) {
  // Its lock timeout is shorter than the 1 s after which Postgres looks for deadlocks. Otherwise Postgres could end Ponder's statement.
  const sql = postgres(databaseUrl, { max: 1, onnotice: () => {}, connection: { lock_timeout: 500 } })
  const seen: { block: bigint; batches: number }[] = []
  let isWatching = true
  const watching = (async () => {
    while (isWatching) {
      const [row] = await sql<{ block: string; batches: number }[]>`
        select substring(latest_checkpoint, 27, 16) as block,
          (select count(*)::integer from indexer.batch) as batches
        from indexer._ponder_checkpoint`.catch(ignoreDeadlock)
      if (row) seen.push({ block: BigInt(row.block), batches: row.batches })
      await new Promise((resolve) => setTimeout(resolve, 2))
    }
  })()
  watching.catch(() => {}) // ignore it here, because `stop` throws it
  const stop = async () => {
    isWatching = false
    await watching.finally(() => sql.end())
    return seen
  }
  return { stop, [Symbol.asyncDispose]: async () => void (await stop().catch(() => {})) }
}

export async function readPaid({ sql }: TestIndex) {
  const rows = await sql<{ value: bigint }[]>`
    select value from indexer.authorization where recipient = ${providerA} order by value`
  return rows.map(({ value }) => value)
}
