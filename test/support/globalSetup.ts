import { chmod, mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { migrateAt } from '@tollkeeper/ledger/store/migrate'
import connect from 'postgres'
import type { TestProject } from 'vitest/node'
import { startPostgres } from '../../apps/devstack/stack/postgres.ts'

declare module 'vitest' {
  interface ProvidedContext {
    /** A superuser's URL of the run's Postgres; use `createTestDatabase` to get a database. */
    postgresUrl: string
    /** The name of a database with our schema, for `createMigratedDatabase`. */
    migratedDatabase: string
    /** A folder for this run, for files that one test file creates and several use. */
    runFolder: string
  }
}

/** Starts one Postgres and creates one folder per run. */
export default async function setup(project: TestProject): Promise<() => Promise<void>> {
  const postgres = await startPostgres({ fast: true })
  const sql = connect(postgres.url, { max: 1 })
  // Plan each statement once: otherwise a third of Postgres' work in a run is planning the same statements in sessions that live
  // for seconds.
  await sql`alter system set plan_cache_mode = force_generic_plan`
  await sql`select pg_reload_conf()`
  await sql.end()
  const migratedDatabase = 'migrated'
  await migrateAt(await postgres.createDatabase(migratedDatabase))
  project.provide('postgresUrl', postgres.url)
  project.provide('migratedDatabase', migratedDatabase)
  const runFolder = await mkdtemp(join(tmpdir(), 'tollkeeper-tests-'))
  // If we run as root, Postgres runs as another user. That user must be able to enter this folder, because the package that tests
  // install in it also starts Postgres.
  await chmod(runFolder, 0o755)
  project.provide('runFolder', runFolder)
  return async () => {
    await postgres.close()
    await rm(runFolder, { recursive: true, force: true })
  }
}
