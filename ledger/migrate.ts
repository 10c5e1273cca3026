import { readdir, readFile } from 'node:fs/promises'
import { type Database, openDatabase, type Queryable, requirePostgres, schema } from './database.ts'

const folder = new URL('./migrations/', import.meta.url)

// Any constant will do, as long as nothing else on the server takes the same advisory lock.
const lockId = 7_402_001n

/** How the database's schema compares with this version's migrations. */
export type SchemaState = {
  /** Migrations that the database has. */
  applied: string[]
  /** Those of them that this version doesn't know: a newer version's. */
  unknown: string[]
  /** This version's that the database doesn't have yet. */
  pending: string[]
}

/** The database was changed by another version of Tollkeeper, whose tables this one might misread. */
export class UnknownMigrations extends Error {
  override readonly name = 'UnknownMigrations'

  constructor(unknown: readonly string[]) {
    super(
      `the database has migrations that this version doesn't know: ${unknown.join(', ')}. ` +
        'Start the version that made them, or a newer one; or point DATABASE_URL at another database.',
    )
  }
}

/** Compares the database's migrations with this version's. Changes nothing. */
export async function readSchemaState(sql: Queryable): Promise<SchemaState> {
  const known = (await readdir(folder)).filter((name) => name.endsWith('.sql')).sort()
  const applied = await readApplied(sql)
  return {
    applied,
    unknown: applied.filter((name) => !known.includes(name)),
    pending: known.filter((name) => !applied.includes(name)),
  }
}

/**
 * Brings our schema up to date, in one transaction; processes that start together wait for each other.
 *
 * @returns the names of the migrations that were applied, empty when there was nothing to do.
 * @throws UnknownMigrations where a newer version was here before. Then nothing was changed.
 */
export function migrate(database: Database): Promise<string[]> {
  return database.begin(async (sql) => {
    await sql`select pg_advisory_xact_lock(${lockId})`
    const { unknown, pending } = await readSchemaState(sql)
    if (unknown.length > 0) throw new UnknownMigrations(unknown)
    await sql`create schema if not exists ${sql(schema)}`
    await sql`
      create table if not exists migration (name text primary key, applied_at timestamptz not null default now())`
    for (const name of pending) {
      const text = await readFile(new URL(name, folder), 'utf8')
      await sql.unsafe(text).catch((error: unknown) => {
        throw new Error(`migration ${name} failed, nothing of it was kept`, { cause: error })
      })
      await sql`insert into migration (name) values (${name})`
    }
    return pending
  })
}

/**
 * Opens the database for {@link migrate} alone: a migration, and the wait for another process's, may take their time.
 *
 * @throws {ConfigError} where Postgres is too old.
 */
export async function migrateAt(url: string): Promise<string[]> {
  const database = openDatabase({ url, max: 1, applicationName: 'tollkeeper-migrate', limited: false })
  try {
    await requirePostgres(database)
    return await migrate(database)
  } finally {
    await database.end({ timeout: 1 })
  }
}

async function readApplied(sql: Queryable): Promise<string[]> {
  const [found] = await sql<{ exists: boolean }[]>`
    select to_regclass(${`${schema}.migration`}) is not null as exists`
  if (!found?.exists) return []
  const rows = await sql<{ name: string }[]>`select name from ${sql(schema)}.migration order by name`
  return rows.map((row) => row.name)
}
