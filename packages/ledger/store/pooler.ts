import { ConfigError, type Environment, readVariable, requireVariable } from '@tollkeeper/runtime/env'
import { type Database, sessionSettings } from './database.ts'
import { migrateAt } from './migrate.ts'

// A pooler in transaction mode, such as PgBouncer, lends a session of Postgres for one transaction. So api and keeper keep
// nothing in a session: they set nothing, prepare nothing under a name, and lock by rows. The pooler sets the limits of
// its sessions (deploy/pgbouncer.ini); migrations and Ponder go past it.

export type DatabaseUrls = {
  databaseUrl: string
  /** Postgres' own URL; the same if there is no pooler. */
  directDatabaseUrl: string
}

/** @throws {ConfigError} */
export function readDatabaseUrls(env: Environment): DatabaseUrls {
  const databaseUrl = requireVariable(env, 'DATABASE_URL')
  return { databaseUrl, directDatabaseUrl: readVariable(env, 'DATABASE_DIRECT_URL') ?? databaseUrl }
}

export function isPooled({ databaseUrl, directDatabaseUrl }: DatabaseUrls): boolean {
  return databaseUrl !== directDatabaseUrl
}

/**
 * For the start of api and keeper: migrates, and checks that the pool's sessions have our settings.
 *
 * @throws {ConfigError}
 */
export async function prepareDatabase(
  sql: Database,
  urls: DatabaseUrls,
  idleInTransactionMs?: number,
): Promise<void> {
  await migrateAt(urls.directDatabaseUrl)
  if (isPooled(urls)) await requireSessionSettings(sql, sessionSettings(idleInTransactionMs))
}

/** What a pooler sets for each of its sessions: PgBouncer's `connect_query`. */
export function connectQuery(settings: ReturnType<typeof sessionSettings>): string {
  return Object.entries(settings)
    .map(([name, value]) => `set ${name} = ${value}`)
    .join('; ')
}

async function requireSessionSettings(
  pooled: Database,
  expected: ReturnType<typeof sessionSettings>,
): Promise<void> {
  const rows = await pooled<{ name: string; setting: string }[]>`
    select name, setting from pg_settings where name = any (${Object.keys(expected)})`
  const got = Object.fromEntries(rows.map(({ name, setting }) => [name, setting]))
  const wrong = Object.entries(expected).filter(([name, value]) =>
    typeof value === 'string' ? got[name] !== value : !isAtMost(Number(got[name]), value),
  )
  if (wrong.length === 0) return
  throw new ConfigError(
    'DATABASE_URL',
    `a pooler that prepares its sessions by "${connectQuery(expected)}"`,
    wrong.map(([name]) => `${name} = ${got[name]}`).join(', '),
  )
}

/** Compares limits, of which 0 means none. */
function isAtMost(limit: number, most: number): boolean {
  return limit > 0 && limit <= most
}
