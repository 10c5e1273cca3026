import { ConfigError, type Environment, readVariable, requireVariable } from '@tollkeeper/runtime/env'
import { type Database, sessionSettings } from './database.ts'
import { migrateAt } from './migrate.ts'

// A pooler in transaction mode, such as PgBouncer, assigns a Postgres session for only one transaction. So the api and the keeper keep no
// state in a session: no settings, no named prepared statements, and only row locks. The pooler sets the limits of its sessions
// (deploy/pgbouncer.ini). Migrations and Ponder bypass the pooler.

export type DatabaseUrls = {
  databaseUrl: string
  /** The URL of Postgres itself; equal to the other URL if there is no pooler. */
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
 * Migrates at the start of the api and the keeper, and checks that the pool's sessions have our settings.
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

/** Returns PgBouncer's `connect_query`, which sets up each of its sessions. */
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
    `a pooler that runs "${connectQuery(expected)}" in each new session`,
    wrong.map(([name]) => `${name} = ${got[name]}`).join(', '),
  )
}

/** Compares limits, where 0 means no limit. */
function isAtMost(limit: number, most: number): boolean {
  return limit > 0 && limit <= most
}
