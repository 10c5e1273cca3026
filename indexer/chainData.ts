import type { NetworkSettings } from '@tollkeeper/chain/networkSettings'
import { openReader } from '@tollkeeper/chain/reader'
import type { Queryable } from '@tollkeeper/ledger/store/database'
import { forgetStartHashes } from './startBlocks.ts'
import { withSql } from './withSql.ts'

// Ponder assumes that a chain id always means the same chain, and that no reorg is deeper than its finality. A development chain can violate both
// assumptions. The index then keeps wrong rows, and a restart doesn't remove them.

export type MismatchedChain = { network: NetworkSettings['network']; schema: string; detail: string }

/**
 * Compares the blocks that Ponder considers final with the chain.
 *
 * @param schema the schema of the index
 * @returns one entry for each schema that has rows of another chain, or of blocks that are no longer canonical
 */
export function findMismatches(
  databaseUrl: string,
  schema: string,
  networks: readonly NetworkSettings[],
): Promise<MismatchedChain[]> {
  return withSql(databaseUrl, async (sql) => {
    const mismatched: MismatchedChain[] = []
    for (const settings of networks) {
      const { network } = settings
      const chain = openReader(settings)
      const blockAt = (blockNumber: bigint) => chain.getBlock({ blockNumber }).catch(nullIfMissing)

      for (const { number, hash } of await readFetched(sql, network.chainId)) {
        const block = await blockAt(number)
        if (block?.hash === hash) continue
        const found = block ? `is ${block.hash}` : 'is missing'
        mismatched.push({
          network,
          schema: syncSchema,
          detail: `block ${number} is ${hash} in the index, but on the chain it ${found}`,
        })
      }
      for (const { number, time } of await readFinalized(sql, schema, network.chainId)) {
        const block = await blockAt(number)
        if (block?.timestamp === time) continue
        const found = block ? `has ${block.timestamp}` : 'is missing'
        mismatched.push({
          network,
          schema,
          detail: `block ${number} has the time ${time} in the index, but on the chain it ${found}`,
        })
      }
    }
    return mismatched
  })
}

/** The schema of Ponder's cache of blocks, logs, transactions and RPC answers, which all indexes share. */
const syncSchema = 'ponder_sync'

/**
 * Removes an index and Ponder's cache of the named chains, so that the next start reads these chains again.
 *
 * @throws if a running Ponder has locked the schema
 */
export function dropIndex(databaseUrl: string, schema: string, chainIds: readonly number[]): Promise<void> {
  return withSql(databaseUrl, async (sql) => {
    if (await isInUse(sql, schema)) {
      throw new Error(`${schema} is in use by a running indexer: stop it first`)
    }
    await sql.begin(async (transaction) => {
      for (const table of await tablesByChain(transaction)) {
        await transaction`delete from ${transaction(syncSchema)}.${transaction(table)}
          where chain_id in ${transaction([...chainIds])}`
      }
      await forgetStartHashes(transaction, chainIds)
      // This also drops the readers' views. The next start creates them again.
      await transaction`drop schema if exists ${transaction(schema)} cascade`
    })
  })
}

/** Returns whether the index contains each of these chains. */
export function holdsChains(
  databaseUrl: string,
  schema: string,
  chainIds: readonly number[],
): Promise<boolean> {
  return withSql(databaseUrl, async (sql) => {
    if (!(await exists(sql, schema, '_ponder_checkpoint'))) return false
    const rows = await sql`
      select 1 from ${sql(schema)}._ponder_checkpoint where chain_id in ${sql([...chainIds])}`
    return rows.length === chainIds.length
  })
}

/**
 * Resets the checkpoint of each of these chains to the chain's final block. Call this for the chains that a start of Ponder leaves out. When Ponder
 * starts, it removes the rows that aren't final of all chains, but resets only the checkpoints of the chains that it starts with. Without this call,
 * readers would see a checkpoint that is newer than the rows.
 */
export function revertCheckpoints(
  databaseUrl: string,
  schema: string,
  chainIds: readonly number[],
): Promise<void> {
  return withSql(databaseUrl, async (sql) => {
    if (!(await exists(sql, schema, '_ponder_checkpoint'))) return
    await sql`
      update ${sql(schema)}._ponder_checkpoint set latest_checkpoint = safe_checkpoint
      where chain_id in ${sql([...chainIds])}`
  })
}

/**
 * Unlocks the schema if the Ponder process that locked it is gone. A killed process can't unlock its schema, and the next process would wait until
 * the last heartbeat is 25 seconds old.
 */
export function releaseDeadLock(databaseUrl: string, schema: string): Promise<void> {
  return withSql(databaseUrl, async (sql) => {
    // When a process is gone, Postgres ends its session at once, or a little later if the session is still running a query. So check several times.
    for (let attempt = 0; attempt < 20 && (await isInUse(sql, schema)); attempt++) {
      const [{ sessions }] = await sql<[{ sessions: number }]>`
        select count(*)::integer as sessions from pg_stat_activity
        where datname = current_database()
          and application_name in (${`${schema}_internal`}, ${`${schema}_user`}, ${`${schema}_readonly`})`
      if (sessions === 0) {
        await sql`update ${sql(schema)}._ponder_meta set value = jsonb_set(value, '{is_locked}', '0') where key = 'app'`
        return
      }
      await new Promise((resolve) => setTimeout(resolve, 100))
    }
  })
}

async function isInUse(sql: Queryable, schema: string): Promise<boolean> {
  if (!(await exists(sql, schema, '_ponder_meta'))) return false
  const heartbeatTimeoutMs = 25_000 // the value in Ponder's source
  const [row] = await sql<{ isInUse: boolean }[]>`
    select (value ->> 'is_locked')::integer = 1
      and (value ->> 'heartbeat_at')::numeric > ${Date.now() - heartbeatTimeoutMs} as "isInUse"
    from ${sql(schema)}._ponder_meta where key = 'app'`
  return row?.isInUse ?? false
}

/** Returns the newest fetched block, if any. */
async function readFetched(sql: Queryable, chainId: number): Promise<{ number: bigint; hash: string }[]> {
  if (!(await exists(sql, syncSchema, 'blocks'))) return []
  const rows = await sql<{ number: string; hash: string }[]>`
    select number, hash from ${sql(syncSchema)}.blocks where chain_id = ${chainId} order by number desc limit 1`
  return rows.map(({ number, hash }) => ({ number: BigInt(number), hash }))
}

/** Returns the block up to which the index is final, if any. */
async function readFinalized(
  sql: Queryable,
  schema: string,
  chainId: number,
): Promise<{ number: bigint; time: bigint }[]> {
  if (!(await exists(sql, schema, '_ponder_checkpoint'))) return []
  // A checkpoint is text of digits: 10 for the block time, 16 for the chain id, 16 for the block number, and more for positions within the block.
  return sql<{ number: bigint; time: bigint }[]>`
    select substring(finalized_checkpoint, 27, 16) as number, substring(finalized_checkpoint, 1, 10) as time
    from ${sql(schema)}._ponder_checkpoint where chain_id = ${chainId}`.then((rows) =>
    rows.map(({ number, time }) => ({ number: BigInt(number), time: BigInt(time) })),
  )
}

async function exists(sql: Queryable, schema: string, table: string): Promise<boolean> {
  const [row] = await sql<{ found: boolean }[]>`
    select exists (select from information_schema.tables
      where table_schema = ${schema} and table_name = ${table}) as found`
  return row?.found ?? false
}

async function tablesByChain(sql: Queryable): Promise<string[]> {
  const rows = await sql<{ name: string }[]>`
    select table_name as name from information_schema.columns
    where table_schema = ${syncSchema} and column_name = 'chain_id'`
  return rows.map(({ name }) => name)
}

function nullIfMissing(error: unknown): null {
  if (error instanceof Error && error.name === 'BlockNotFoundError') return null
  throw error
}
