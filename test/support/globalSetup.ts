import type { TestProject } from 'vitest/node'
import { startPostgres } from '../../scripts/postgres.ts'

declare module 'vitest' {
  interface ProvidedContext {
    /** A superuser's URL of the run's Postgres; take a database of your own with `createTestDatabase`. */
    postgresUrl: string
  }
}

/** One Postgres a run. */
export default async function setup(project: TestProject): Promise<() => Promise<void>> {
  const postgres = await startPostgres({ fast: true })
  project.provide('postgresUrl', postgres.url)
  return postgres.close
}
