import { randomBytes } from 'node:crypto'
import { inject } from 'vitest'
import { createDatabase } from '../../scripts/postgres.ts'

/**
 * A new, empty database on the run's real Postgres. Nothing need be dropped: the server goes with the run.
 *
 * @returns its URL
 */
export async function createTestDatabase(): Promise<string> {
  const url = new URL(inject('postgresUrl'))
  const name = `test_${randomBytes(8).toString('hex')}`
  await createDatabase(url.href, name)
  url.pathname = `/${name}`
  return url.href
}
