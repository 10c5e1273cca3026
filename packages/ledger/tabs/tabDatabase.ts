import { createCache } from '@tollkeeper/runtime/cache'
import type { Address, Hex } from 'viem'
import { type Database, openDatabase, requirePostgres } from '../store/database.ts'
import { migrate, tabSchema, tabStoreFolder } from '../store/migrate.ts'

/** Connections to the tab store. */
export type TabDatabase = {
  /** The server that has access to all payers. */
  all: Database
  /** The server with a payer's rows: on a cluster the payer's worker, otherwise the same server. */
  of(payer: Address): Database | Promise<Database>
  /** Whether it is on Citus. A statement on `all` then runs on several servers, and can't lock their rows first. */
  isCluster: boolean
  /** Closes the connections that were opened for it. */
  end(options?: { timeout?: number }): Promise<void>
}

export type TabDatabaseOptions = {
  /** Null if the tab store is in the ledger's database. */
  url: string | null
  ledger: Database
  /** Maximum number of connections to each server. */
  max?: number
  applicationName: string
}

/** The oldest Postgres version for the tab store: Citus may lag behind by one or two versions. */
const oldestPostgres = 15
/**
 * Time in ms for which a payer's server in a cluster is cached. If the payer has moved, the former server still answers, but more slowly.
 */
const placeTtlMs = 30_000
const maxPayers = 200_000

/**
 * Opens the tab store, and brings it up to date.
 *
 * On Citus, its tables are distributed by payer, and a payer's statements go directly to the worker with its shard. Through the
 * coordinator, a group of several payers would need a two-phase commit.
 *
 * @throws {ConfigError} if Postgres is too old.
 */
export async function openTabDatabase(options: TabDatabaseOptions): Promise<TabDatabase> {
  const { url, ledger } = options
  // Without a URL, the tab tables are in the ledger's database, whose migrations created them.
  if (url === null) return onOnePostgres(ledger)
  const isCluster = await migrateTabs(url)
  const all = openDatabase({ ...options, url, isOlder: true })
  const { of, end } = isCluster ? openWorkers(all, { ...options, url }) : onOnePostgres(all)
  return {
    all,
    of,
    isCluster,
    async end(endOptions) {
      await Promise.all([end(endOptions), all.end(endOptions)])
    },
  }
}

/** Returns the tab store on one Postgres, which the caller closes. */
export function onOnePostgres(sql: Database): TabDatabase {
  return { all: sql, of: () => sql, isCluster: false, end: async () => {} }
}

/**
 * Brings a separate tab store up to date; processes that start together wait for each other.
 *
 * @returns whether it is on Citus.
 */
async function migrateTabs(url: string): Promise<boolean> {
  const sql = openDatabase({ url, max: 1, applicationName: 'tollkeeper-migrate', limited: false })
  try {
    await requirePostgres(sql, oldestPostgres)
    await migrate(sql, tabStoreFolder, tabSchema)
    const [citus] = await sql`select from pg_extension where extname = 'citus'`
    if (citus) await distribute(sql)
    return citus !== undefined
  } finally {
    await sql.end({ timeout: 1 })
  }
}

/** An arbitrary key that no other code uses, as in migrate.ts. */
const distributionLock = 7_402_002n

/** Distributes all tables by payer, so that one worker has all rows of a payer. It does nothing if they are already distributed. */
async function distribute(sql: Database): Promise<void> {
  // The lock is held until this connection ends.
  await sql`select pg_advisory_lock(${distributionLock})`
  for (const table of ['tab', 'line', 'item', 'request', 'credit']) {
    const name = `${tabSchema}.${table}`
    const [known] = await sql`select from pg_dist_partition where logicalrelid = ${name}::regclass`
    if (known) continue
    await (table === 'tab'
      ? sql`select create_distributed_table(${name}, 'payer')`
      : sql`select create_distributed_table(${name}, 'payer', colocate_with => ${`${tabSchema}.tab`})`)
  }
}

function openWorkers(
  all: Database,
  { url, max, applicationName }: Omit<TabDatabaseOptions, 'url'> & { url: string },
): Pick<TabDatabase, 'of' | 'end'> {
  const workers = new Map<string, Database>()
  const places = createCache<Address, string>({
    async load(payer) {
      const [place] = await all<{ host: string; port: number }[]>`
        select nodename as host, nodeport as port from citus_shards
        where table_name = 'tabs.tab'::regclass
          and shardid = get_shard_id_for_distribution_column('tabs.tab', ${toBytes(payer)}::bytea)`
      if (place === undefined) throw new Error(`no worker of the tab store holds ${payer}`)
      return `${place.host}:${place.port}`
    },
    ttlMs: placeTtlMs,
    refreshAfterMs: placeTtlMs / 2,
    max: maxPayers,
    now: () => performance.now(),
  })

  function worker(place: string): Database {
    const known = workers.get(place)
    if (known) return known
    const colon = place.lastIndexOf(':')
    const at = { host: place.slice(0, colon), port: Number(place.slice(colon + 1)) }
    const sql = openDatabase({
      url,
      at,
      applicationName,
      isOlder: true,
      ...(max !== undefined && { max }),
    })
    workers.set(place, sql)
    return sql
  }

  return {
    async of(payer) {
      return worker(await places.get(payer))
    },
    async end(options) {
      await Promise.all([...workers.values()].map((sql) => sql.end(options)))
    },
  }
}

export function toBytes(hex: Hex): Buffer {
  return Buffer.from(hex.slice(2), 'hex')
}

export function toHex(bytes: Uint8Array): Hex {
  return `0x${Buffer.from(bytes).toString('hex')}`
}
