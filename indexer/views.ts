import { setTimeout as delay } from 'node:timers/promises'
import type { NetworkSettings } from '@tollkeeper/chain/networkSettings'
import { openReader } from '@tollkeeper/chain/reader'
import type { Database } from '@tollkeeper/ledger/store/database'
import { failedDependency } from '@tollkeeper/runtime/dependencies'
import { describeError } from '@tollkeeper/runtime/log'
import { withSql } from './withSql.ts'

// Ponder creates the tables. This module creates the views and database indexes that readers use. Ponder could create them, but would drop and
// rebuild them at each start. That takes longer as the index grows, and readers couldn't use them during that time.

/** The schema with the readers' views. */
const viewsSchema = 'indexer'

/**
 * Database indexes in addition to the primary keys, by table. They are built once, when the index has caught up, which is faster than updating them
 * with each row.
 */
export const databaseIndexes = {
  authorization: [
    'chain_id, tx_hash, batch_log_index',
    'chain_id, recipient, block_number desc',
    'chain_id, block_number',
  ],
  batch: ['chain_id, sequence desc', 'chain_id, block_number', 'batch_id'],
  payout: ['chain_id, splitter, block_number desc, log_index desc'],
  batch_recipient: ['chain_id, recipient, sequence desc'],
} as const

/**
 * Makes an index that has caught up visible to readers: builds its database indexes and moves the views to it. If the views already show
 * it, as after a restart, this does nothing.
 *
 * If Postgres restarts or fails over, Ponder connects again and continues. This function does the same: it retries until the views show the index, or
 * until the signal aborts. It doesn't rebuild database indexes that are complete.
 *
 * @param schema the schema of the index
 */
export async function showIndex(
  databaseUrl: string,
  schema: string,
  networks: readonly NetworkSettings[],
  { signal, onLog }: { signal: AbortSignal; onLog?: ((line: string) => void) | undefined },
): Promise<void> {
  for (;;) {
    try {
      return await withSql(databaseUrl, async (sql) => {
        if (await isShown(sql, schema)) return
        await createIndexes(sql, schema)
        await untilCaughtUp(sql, schema, networks, signal)
        // Ponder may have ended before the index caught up.
        signal.throwIfAborted()
        await moveViews(sql, schema)
      })
    } catch (error) {
      if (signal.aborted || failedDependency(error) !== 'database') throw error
      const msg = `the views don't show ${schema} yet, because the connection to Postgres was lost; trying again`
      onLog?.(JSON.stringify({ level: 40, time: Date.now(), msg, err: describeError(error) }))
      await delay(againMs, undefined, { signal }).catch(() => {})
    }
  }
}

const againMs = 500

async function isShown(sql: Database, schema: string): Promise<boolean> {
  const [row] = await sql<[{ isShown: boolean }]>`
    select coalesce(obj_description(to_regnamespace(${viewsSchema}), 'pg_namespace') = ${schema}
      and to_regclass(${`${viewsSchema}._ponder_checkpoint`}) is not null, false) as "isShown"`
  return row.isShown
}

async function createIndexes(sql: Database, schema: string): Promise<void> {
  // `concurrently` lets Ponder write during the build. An interrupted build leaves an invalid index, which Postgres never uses. Drop it first.
  const broken = await sql<{ name: string }[]>`
    select c.relname as name from pg_index i join pg_class c on c.oid = i.indexrelid
    where c.relnamespace = to_regnamespace(${schema}) and not i.indisvalid`
  for (const { name } of broken) await sql`drop index ${sql(schema)}.${sql(name)}`
  for (const [table, indexes] of Object.entries(databaseIndexes)) {
    for (const [i, columns] of indexes.entries()) {
      await sql.unsafe(
        `create index concurrently if not exists ${table}_by_${i} on "${schema}".${table} (${columns})`,
      )
    }
  }
}

/**
 * Resolves once the index has reached the heads of the chains and isn't behind the index that the views show now. It doesn't wait for a
 * chain whose nodes don't answer.
 */
async function untilCaughtUp(
  sql: Database,
  schema: string,
  networks: readonly NetworkSettings[],
  signal: AbortSignal,
): Promise<void> {
  const chains = networks.map((settings) => ({
    chainId: settings.network.chainId,
    client: openReader(settings),
  }))
  const readHeads = () =>
    Promise.all(chains.map(({ client }) => client.getBlockNumber().catch(() => undefined)))
  const first = await readHeads()
  while (!signal.aborted) {
    const [ours, shown, heads] = [
      await readBlocks(sql, schema),
      await readBlocks(sql, viewsSchema),
      await readHeads(),
    ]
    const isThere = chains.every(({ chainId }, i) => {
      const head = heads[i]
      if (head === undefined) return true
      const block = ours.get(chainId) ?? -1n
      const other = shown.get(chainId) ?? 0n
      // If the views show a block above the head, they still show another chain with the same id: a local chain that was replaced. This index can't
      // and needn't reach that block.
      const isOfThisChain = other <= head
      return block >= (first[i] ?? 0n) && (block >= other || !isOfThisChain)
    })
    if (isThere) return
    await new Promise((resolve) => setTimeout(resolve, 100))
  }
}

async function readBlocks(sql: Database, schema: string): Promise<Map<number, bigint>> {
  const [{ table }] = await sql<[{ table: string | null }]>`
    select to_regclass(${`${schema}._ponder_checkpoint`}) as table`
  if (table === null) return new Map()
  const rows = await sql<{ chainId: number; block: string }[]>`
    select chain_id::integer as "chainId", substring(latest_checkpoint, 27, 16) as block
    from ${sql(schema)}._ponder_checkpoint`
  return new Map(rows.map(({ chainId, block }) => [chainId, BigInt(block)]))
}

/**
 * Moves the views by renaming schemas. So a query sees either all old views or all new ones, and queries don't wait for each other or
 * deadlock, as they would if views were dropped and created one by one.
 */
async function moveViews(sql: Database, schema: string): Promise<void> {
  const [next, former] = [`${viewsSchema}_next`, `${viewsSchema}_former`]
  const tables = await sql<{ name: string }[]>`
    select table_name as name from information_schema.tables
    where table_schema = ${schema} and table_type = 'BASE TABLE'
      and table_name not like '\\_reorg\\_%' and table_name <> '_ponder_checkpoint'`
  await sql`drop schema if exists ${sql(former)} cascade`
  await sql.begin(async (transaction) => {
    await transaction`drop schema if exists ${transaction(next)} cascade`
    await transaction`create schema ${transaction(next)}`
    for (const { name } of tables) {
      await transaction.unsafe(`create view ${next}.${name} as select * from "${schema}".${name}`)
    }
    // When Ponder starts, one transaction removes the rows of all blocks that aren't final, and resets `is_ready`, but keeps the latest checkpoint.
    // Until Ponder is ready again, the index has only final blocks, so this view shows the final checkpoint.
    await transaction.unsafe(`
      create view ${next}._ponder_checkpoint as
      select c.chain_name, c.chain_id, c.safe_checkpoint, c.finalized_checkpoint,
        case when (m.value ->> 'is_ready')::integer = 1 then c.latest_checkpoint else c.safe_checkpoint end
          as latest_checkpoint
      from "${schema}"._ponder_checkpoint c, "${schema}"._ponder_meta m where m.key = 'app'`)
    const [{ exists }] = await transaction<[{ exists: boolean }]>`
      select to_regnamespace(${viewsSchema}) is not null as exists`
    if (exists) await transaction.unsafe(`alter schema ${viewsSchema} rename to ${former}`)
    await transaction.unsafe(`alter schema ${next} rename to ${viewsSchema}`)
    await transaction.unsafe(`comment on schema ${viewsSchema} is '${schema}'`)
  })
  await sql`drop schema if exists ${sql(former)} cascade`
}
