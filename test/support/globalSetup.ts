import type { TestProject } from 'vitest/node'
import { migrateAt } from '#ledger/store/migrate'
import { startPostgres } from '../../local/stack/postgres.ts'

declare module 'vitest' {
  interface ProvidedContext {
    /** A superuser's URL of the run's Postgres; take a database of your own with `createTestDatabase`. */
    postgresUrl: string
    /** The name of a database with our schema, for `createMigratedDatabase`. */
    migratedDatabase: string
  }
}

/** One Postgres a run. */
export default async function setup(project: TestProject): Promise<() => Promise<void>> {
  const postgres = await startPostgres({ fast: true })
  const migratedDatabase = 'migrated'
  await migrateAt(await postgres.createDatabase(migratedDatabase))
  project.provide('postgresUrl', postgres.url)
  project.provide('migratedDatabase', migratedDatabase)
  return postgres.close
}
