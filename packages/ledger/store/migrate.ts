import { readVersion } from '@tollkeeper/runtime/version'
import { type Database, openDatabase, type Queryable, requirePostgres, schema } from './database.ts'
import { findChangedNetworks, requireKnownNetworks, storeNetworks } from './networks.ts'
import {
  compareFunctions,
  type FunctionChanges,
  findNewer,
  type LoadedFunction,
  loadFunctions,
  readLoaded,
  readSqlFiles,
  readSqlFunctions,
  type SqlFile,
} from './sqlFunctions.ts'

/** The folder with this version's `migrations/` and `functions/`. Committed migrations never change: tools/checksumMigrations.ts. */
export const ledgerFolder = new URL('../', import.meta.url)
/** The tab store's folder. The tab store has a separate schema and may be in another database. */
export const tabStoreFolder = new URL('../tabs/', import.meta.url)
export const tabSchema = 'tabs'

/** The version whose 0001_schema.sql is the baseline. Databases of earlier versions can't be migrated. */
const baselineVersion = '0.1.0'

// An arbitrary key for an advisory lock that no other code on the server uses.
const lockId = 7_402_001n

/** How the database's schema compares with this version's. */
export type SchemaState = {
  /** Names of the migrations that the database has. */
  applied: string[]
  /** This version's migrations that the database lacks. */
  pending: SqlFile[]
  /** Functions that this version loads and drops. */
  functions: FunctionChanges
  /** Names of networks that this version knows, but that the table `network` lacks or stores with different values. */
  networks: string[]
  /** Why this version must not use the database; null if it may as soon as nothing is pending. */
  refusal: SchemaRefusal | null
}

/** The database's tables belong to another version, and this version would misread them. */
export abstract class SchemaRefusal extends Error {
  /** Description of the fault. */
  readonly found: string
  /** Advice on how to correct it. */
  readonly advice: string

  constructor(found: string, advice: string) {
    super(`${found}. ${advice}`)
    this.found = found
    this.advice = advice
  }
}

const startNewer =
  'Start the newest of the named versions, or a later version; or point DATABASE_URL at another database'

/** The database was migrated by a newer version. */
export class UnknownMigrations extends SchemaRefusal {
  override readonly name = 'UnknownMigrations'

  constructor(unknown: readonly Applied[]) {
    const list = unknown.map(({ name, version }) => `${name} (applied by ${version})`).join(', ')
    super(`the database is newer than this version, ${readVersion()}: it has ${list}`, startNewer)
  }
}

/** The database has functions of a newer version, which this version would replace with its older functions. */
export class NewerFunctions extends SchemaRefusal {
  override readonly name = 'NewerFunctions'

  constructor(newer: readonly LoadedFunction[]) {
    const list = newer.map(
      ({ name, checksum, version }) => `${name} (${checksum === null ? 'dropped' : 'loaded'} by ${version})`,
    )
    super(
      `the database is newer than this version, ${readVersion()}: its functions differ in ${list.join(', ')}`,
      startNewer,
    )
  }
}

/** The database was created by migrations whose texts differ from this version's, so there is no known way to migrate its tables to this version. */
export class OtherBaseline extends SchemaRefusal {
  override readonly name = 'OtherBaseline'

  /**
   * @param differing applied migrations whose text differs from this version's; null if the database has no checksums.
   * @param from the schema that they created.
   */
  constructor(differing: readonly Applied[] | null, from: string) {
    super(
      `the database was made by ${differing === null ? `a version before ${baselineVersion}'s baseline` : describeMakers(differing)}`,
      'This version can neither use nor migrate it, and changed nothing. Start the version that made it, let its keeper ' +
        'settle the queued payments, and export what is needed (tollkeeper receipts, GET /providers/{id}/statement); then point ' +
        `DATABASE_URL at an empty database. A development database can be emptied: drop schema ${from} cascade`,
    )
  }
}

/** A migration that the database has; checksum and version are null if it is older than the baseline. */
type Applied = { name: string; checksum: string | null; version: string | null }

/**
 * Reads the files of a folder that are applied once, in order: functions whose results are stored in indexes, then migrations. A released file must
 * never change, because databases that already have it would not notice.
 */
export async function readMigrations(folder = ledgerFolder): Promise<SqlFile[]> {
  const stored = await readSqlFiles(new URL('functions/stored/', folder)).catch(
    (error: NodeJS.ErrnoException) => {
      if (error.code !== 'ENOENT') throw error
      return []
    },
  )
  return [...stored, ...(await readSqlFiles(new URL('migrations/', folder)))]
}

/** Compares the database's schema with this version's, without changing anything. */
export async function readSchemaState(
  sql: Queryable,
  folder = ledgerFolder,
  into = schema,
): Promise<SchemaState> {
  const { loaded: _, ...state } = await compare(sql, folder, into)
  return state
}

async function compare(
  sql: Queryable,
  folder: URL,
  into: string,
): Promise<SchemaState & { loaded: LoadedFunction[] }> {
  const [migrations, own] = [
    await readMigrations(folder),
    await readSqlFunctions(new URL('functions/', folder)),
  ]
  const { applied, hasChecksums } = await readApplied(sql, into)
  const loaded = await readLoaded(sql, into)
  const functions = compareFunctions(own, loaded)
  const checksums = new Map(migrations.map(({ name, checksum }) => [name, checksum]))
  const appliedNames = applied.map(({ name }) => name)
  const networks = await findChangedNetworks(sql, into)
  const newer = findNewer(functions, loaded)
  const refusal = hasChecksums ? findRefusal(applied, checksums, into) : new OtherBaseline(null, into)
  return {
    applied: appliedNames,
    pending: migrations.filter(({ name }) => !appliedNames.includes(name)),
    functions,
    networks: networks.map(({ name }) => name),
    refusal: refusal ?? (newer.length > 0 ? new NewerFunctions(newer) : null),
    loaded,
  }
}

/** Describes the changes that this version still has to make in the database, for a message; null if there are none. */
export function describePending({ pending, functions, networks }: SchemaState): string | null {
  if (pending.length > 0) return `lacks ${pending.map(({ name }) => name).join(', ')}`
  const changed = [...functions.load.map(({ name }) => name), ...functions.drop]
  if (changed.length > 0) return `has other functions: ${changed.join(', ')}`
  return networks.length > 0 ? `has other networks: it differs in ${networks.join(', ')}` : null
}

/**
 * Brings our schema up to date, in one transaction; processes that start together wait for each other. If the database is up to date, it is
 * only read.
 *
 * @param folder with `migrations/` and `functions/`; its URL ends with a slash.
 * @param into the schema with the tables that record the applied files.
 * @returns the names of the executed files.
 * @throws {SchemaRefusal}, without changing anything, if the database belongs to a newer version or another baseline.
 */
export function migrate(database: Database, folder = ledgerFolder, into = schema): Promise<string[]> {
  return database.begin(async (sql) => {
    await sql`select pg_advisory_xact_lock(${lockId})`
    const state = await compare(sql, folder, into)
    const { refusal, pending, functions, loaded } = state
    if (refusal) throw refusal
    if (describePending(state) === null) return []
    await sql`create schema if not exists ${sql(into)}`
    await sql`
      create table if not exists ${sql(into)}.migration (
        name text primary key,
        checksum text not null, -- of the text that was applied: SHA-256, hex
        version text not null,  -- of the Tollkeeper that applied it
        applied_at timestamptz not null default now()
      )`
    for (const { name, text, checksum } of pending) {
      await sql.unsafe(text).catch((error: unknown) => {
        const reason = error instanceof Error ? error.message : String(error)
        throw new Error(`migration ${name} failed and was rolled back: ${reason}`, { cause: error })
      })
      await sql`insert into ${sql(into)}.migration (name, checksum, version) values (${name}, ${checksum}, ${readVersion()})`
    }
    await storeNetworks(sql, into)
    await loadFunctions(sql, functions, loaded, into)
    return [...pending, ...functions.load].map(({ name }) => name)
  })
}

/**
 * Connects only to {@link migrate} the ledger and the tab store. The connection has no limits, because a migration may take long, and another process
 * that waits for it waits as long.
 *
 * @throws {ConfigError} if Postgres is too old, or if `NETWORKS_FILE` contradicts the stored networks.
 */
export async function migrateAt(url: string): Promise<string[]> {
  const database = openDatabase({ url, max: 1, applicationName: 'tollkeeper-migrate', limited: false })
  try {
    await requirePostgres(database)
    const applied = await migrate(database)
    await requireKnownNetworks(database, schema)
    return [...applied, ...(await migrate(database, tabStoreFolder, tabSchema))]
  } finally {
    await database.end({ timeout: 1 })
  }
}

function findRefusal(
  applied: readonly Applied[],
  checksums: ReadonlyMap<string, string>,
  into: string,
): SchemaRefusal | null {
  const unknown = applied.filter(({ name }) => !checksums.has(name))
  const differing = applied.filter(
    ({ name, checksum }) => checksums.has(name) && checksums.get(name) !== checksum,
  )
  if (differing.length > 0) return new OtherBaseline(differing, into)
  return unknown.length > 0 ? new UnknownMigrations(unknown) : null
}

function describeMakers(differing: readonly Applied[]): string {
  const own = readVersion()
  const makers = [...new Set(differing.map(({ version }) => version))].map((version) =>
    version === own ? `another build of Tollkeeper ${own}` : `Tollkeeper ${version}`,
  )
  const names = differing.map(({ name }) => name)
  return `${makers.join(' and ')} from a different ${names.join(', ')} (this version is ${own})`
}

/** Reads the migrations that the database has, without checksums if it is older than the baseline. */
async function readApplied(
  sql: Queryable,
  into: string,
): Promise<{ applied: Applied[]; hasChecksums: boolean }> {
  const table = `${into}.migration`
  const [found] = await sql<{ exists: boolean; hasChecksums: boolean }[]>`
    select to_regclass(${table}) is not null as exists, exists (
      select from pg_attribute
      where attrelid = to_regclass(${table}) and attname = 'checksum' and not attisdropped
    ) as "hasChecksums"`
  if (!found?.exists) return { applied: [], hasChecksums: true }
  const { hasChecksums } = found
  const details = hasChecksums ? sql`checksum, version` : sql`null as checksum, null as version`
  const applied = await sql<Applied[]>`
    select name, ${details} from ${sql(into)}.migration order by name`
  return { applied: [...applied], hasChecksums }
}
