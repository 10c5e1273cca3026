import * as ponderSchema from '@tollkeeper/indexer/ponder.schema'
import { databaseIndexes } from '@tollkeeper/indexer/views'
import type { Queryable } from '@tollkeeper/ledger/store/database'
import { getTableConfig, type PgTable } from 'drizzle-orm/pg-core'

const tables = {
  authorization: ponderSchema.authorization,
  batch: ponderSchema.batch,
  batch_recipient: ponderSchema.batchRecipient,
  keeper_day: ponderSchema.keeperDay,
  payout: ponderSchema.payout,
  index_gap: ponderSchema.indexGap,
}

/**
 * Creates the tables that Ponder would create, from its own schema file, with indexes and checkpoint. They are for tests and measurements of queries
 * whose rows a small chain couldn't produce. Tests with a real Ponder check that Ponder fills its tables in this way.
 */
export async function createIndexTables(sql: Queryable): Promise<void> {
  await sql`create schema indexer`
  await sql`
    create table indexer._ponder_checkpoint (
      chain_name text primary key, chain_id bigint not null, safe_checkpoint text not null, latest_checkpoint text not null
    )`
  for (const [name, table] of Object.entries(tables)) {
    const { columns, primaryKeys } = getTableConfig(table as PgTable)
    const lines = columns.map(
      (column) => `${column.name} ${column.getSQLType()}${column.notNull ? ' not null' : ''}`,
    )
    for (const key of primaryKeys)
      lines.push(`primary key (${key.columns.map(({ name }) => name).join(', ')})`)
    await sql.unsafe(`create table indexer.${name} (${lines.join(', ')})`)
  }
  for (const [table, indexes] of Object.entries(databaseIndexes)) {
    for (const columns of indexes) await sql.unsafe(`create index on indexer.${table} (${columns})`)
  }
}

/** Runs a task while there is no index, as before Ponder's first start. */
export async function withoutIndex<Result>(sql: Queryable, act: () => Promise<Result>): Promise<Result> {
  await sql`alter schema indexer rename to put_away`
  try {
    return await act()
  } finally {
    await sql`alter schema put_away rename to indexer`
  }
}

/** Moves the indexed head of a chain. */
export async function setIndexedHead(
  sql: Queryable,
  { chainId, blockNumber, blockTime }: { chainId: number; blockNumber: number; blockTime: number },
): Promise<void> {
  const digits = (value: number, length: number) => String(value).padStart(length, '0')
  const checkpoint = `${digits(blockTime, 10)}${digits(chainId, 16)}${digits(blockNumber, 16)}${digits(0, 33)}`
  await sql`
    insert into indexer._ponder_checkpoint (chain_name, chain_id, safe_checkpoint, latest_checkpoint)
    values (${String(chainId)}, ${chainId}, ${checkpoint}, ${checkpoint})
    on conflict (chain_name) do update set latest_checkpoint = excluded.latest_checkpoint`
}
