import { randomBytes } from 'node:crypto'
import { type Database, openDatabase } from '@tollkeeper/ledger/store/database'
import { afterAll, inject } from 'vitest'
import { createDatabase } from '../../apps/devstack/stack/postgres.ts'
import { createIndexTables } from './indexTables.ts'

/**
 * Creates an empty database on the run's real Postgres. The caller needn't drop the database, because the server and
 * its files are removed after the run.
 *
 * @returns its URL
 */
export function createTestDatabase(): Promise<string> {
  return copy('template1')
}

/** Creates a database like {@link createTestDatabase}, with our schema: a copy of the database that was migrated for the run. */
export function createMigratedDatabase(): Promise<string> {
  return copy(inject('migratedDatabase'))
}

/**
 * Creates a database like {@link createMigratedDatabase} in a time zone that is five and a half hours ahead of UTC. So sums
 * by hour or day are wrong if they depend on the database's zone.
 */
export async function createDatabaseInOtherZone(): Promise<string> {
  const url = await createMigratedDatabase()
  const sql = openDatabase({ url, applicationName: 'test', max: 1 })
  await sql.unsafe(`alter database ${new URL(url).pathname.slice(1)} set timezone to 'Asia/Kolkata'`)
  await sql.end()
  return url
}

/**
 * Opens the database of a test file, with our schema and the index's tables, until the file's tests are
 * finished.
 */
export async function useDatabase(): Promise<Database> {
  const sql = openDatabase({ url: await createMigratedDatabase(), applicationName: 'test' })
  afterAll(() => sql.end())
  await createIndexTables(sql)
  return sql
}

async function copy(template: string): Promise<string> {
  const url = new URL(inject('postgresUrl'))
  const name = `test_${randomBytes(8).toString('hex')}`
  await createDatabase(url.href, name, template)
  url.pathname = `/${name}`
  return url.href
}
