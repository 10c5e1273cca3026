import postgres from 'postgres'
import { providerA, type TestIndex } from './harness.ts'

// What tests read through the views of an index.

export async function readBatches({ sql }: TestIndex) {
  return sql`select chain_id, sequence, provider_total from indexer.batch order by chain_id, sequence`
}

/** Ponder locks all tables to drop its triggers, at its start and in a reorg; a reader in its way reads once more. */
function ignoreDeadlock(error: { code?: string }): never[] {
  if (error.code === '40P01' || error.code === '55P03') return []
  throw error
}

/** Reads block and rows all the time, in one statement and so in one snapshot. */
export async function watchViews(databaseUrl: string) {
  // It gives way before Postgres looks for deadlocks (after 1 s), or Postgres would end Ponder.
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
  watching.catch(() => {}) // whoever stops it hears of it
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
