import { readdir, readFile } from 'node:fs/promises'
import { type Database, schema } from './database.ts'

const folder = new URL('./migrations/', import.meta.url)

// Any constant will do, as long as nothing else on the server takes the same advisory lock.
const lockId = 7_402_001n

/**
 * Brings our schema up to date, one transaction a migration; processes that start together wait for each other.
 *
 * @returns the names of the migrations that were applied, empty when there was nothing to do.
 */
export async function migrate(database: Database): Promise<string[]> {
  const files = (await readdir(folder)).filter((name) => name.endsWith('.sql')).sort()
  const connection = await database.reserve()
  try {
    await connection`select pg_advisory_lock(${lockId})`
    await connection`create schema if not exists ${connection(schema)}`
    await connection`
      create table if not exists migration (name text primary key, applied_at timestamptz not null default now())`
    const applied = new Set(
      (await connection<{ name: string }[]>`select name from migration`).map((row) => row.name),
    )
    const pending = files.filter((name) => !applied.has(name))
    for (const name of pending) {
      const text = await readFile(new URL(name, folder), 'utf8')
      await connection`begin`
      try {
        await connection.unsafe(text)
        await connection`insert into migration (name) values (${name})`
        await connection`commit`
      } catch (error) {
        await connection`rollback`
        throw new Error(`migration ${name} failed, nothing of it was kept`, { cause: error })
      }
    }
    return pending
  } finally {
    await connection`select pg_advisory_unlock(${lockId})`.catch(() => {})
    connection.release()
  }
}
