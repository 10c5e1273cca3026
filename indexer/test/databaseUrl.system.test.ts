import { openDatabase } from '@tollkeeper/ledger/store/database'
import { afterAll, beforeAll, expect, test } from 'vitest'
import type { Postgres } from '../../apps/devstack/stack/postgres.ts'
import { createTestDatabase } from '../../test/support/database.ts'
import { startTlsPostgres } from '../../test/support/tlsPostgres.ts'
import { startTestChain, startTestIndexer, type TestChain, trackRunning } from './harness.ts'

// Tests Ponder with database URLs in the forms that hosting providers use. test/internet/databaseUrls.test.ts tests only the drivers.

const { track } = trackRunning()

let secure: Postgres
let chain: TestChain
beforeAll(async () => {
  secure = await startTlsPostgres()
  chain = await startTestChain()
})
afterAll(() => Promise.all([secure?.close(), chain?.close()]))

/** Returns for each session of Ponder whether it is encrypted. */
async function areEncrypted(url: string): Promise<boolean[]> {
  const sql = openDatabase({ url, max: 1, applicationName: 'test', limited: false })
  const rows = await sql<{ ssl: boolean }[]>`
    select distinct ssl from pg_stat_ssl join pg_stat_activity using (pid)
    where datname = current_database() and application_name like 'indexer\_%'`
  await sql.end()
  return rows.map(({ ssl }) => ssl)
}

test('args: `require` makes Ponder encrypt, even if the server’s certificate is self-signed', async () => {
  const url = await secure.createDatabase('required')
  const databaseUrl = `${url}?sslmode=require&channel_binding=require&application_name=x&schema=public`
  await track(startTestIndexer(url, [chain], { databaseUrl }))
  expect(await areEncrypted(url)).toEqual([true])
})

test('args: `prefer` makes Ponder connect without TLS if the server doesn’t support it', async () => {
  const url = await createTestDatabase()
  await track(startTestIndexer(url, [chain], { databaseUrl: `${url}?sslmode=prefer&pgbouncer=true` }))
  expect(await areEncrypted(url)).toEqual([false])
})
