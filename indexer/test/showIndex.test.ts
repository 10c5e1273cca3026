import { networks } from '@tollkeeper/sdk/protocol/networks'
import postgres from 'postgres'
import { afterAll, expect, test } from 'vitest'
import { startCutProxy } from '../../test/support/cutProxy.ts'
import { createTestDatabase } from '../../test/support/database.ts'
import { createIndexTables, setIndexedHead } from '../../test/support/indexTables.ts'
import { shareChain } from '../../test/support/sharedChain.ts'
import { until } from '../../test/support/until.ts'
import { showIndex } from '../views.ts'
import { withSql } from '../withSql.ts'

// Uses the tables of an index that has caught up, without Ponder, because the launcher makes them visible to readers.

const schema = 'indexer_0123456789'
const opened: postgres.Sql[] = []
afterAll(() => Promise.all(opened.map((sql) => sql.end({ timeout: 1 }))))

/** Creates a database with an index, and a proxy in front of it for the code under test. */
async function createIndex() {
  const url = await createTestDatabase()
  const sql = postgres(url, { max: 2, onnotice: () => {} })
  opened.push(sql)
  const chain = await shareChain()
  const { deployments } = chain
  const deployment = deployments.localhost
  if (deployment === undefined) throw new Error('the chain has no deployment')
  const served = { network: networks.localhost, deployment, rpcUrls: [chain.url] }
  await createIndexTables(sql as never)
  await setIndexedHead(sql as never, { chainId: chain.chainId, blockNumber: 1_000_000_000, blockTime: 1 })
  await sql`alter schema indexer rename to ${sql(schema)}`
  await sql`alter table ${sql(schema)}._ponder_checkpoint add column finalized_checkpoint text`
  await sql`create table ${sql(schema)}._ponder_meta (key text primary key, value jsonb not null)`
  await sql`insert into ${sql(schema)}._ponder_meta values ('app', '{"is_ready": 1}')`
  const server = new URL(url)
  const proxy = await startCutProxy(server.hostname, Number(server.port))
  server.host = `127.0.0.1:${proxy.port}`
  return { sql, proxy, behind: server.href, served }
}

const shown = async (sql: postgres.Sql) =>
  (await sql`select obj_description(to_regnamespace('indexer'), 'pg_namespace') as schema`)[0]
    ?.schema as unknown

test.each([
  ['builds a database index', 'create index', `${schema}.batch`],
  ['moves the views', 'drop schema', 'indexer_next.held'],
])(
  'behavior: the views are created even if Postgres restarts while the launcher %s',
  async (_, statement, table) => {
    const { sql, proxy, behind, served } = await createIndex()
    // Simulates an earlier attempt that was interrupted and left this schema.
    await sql`create schema indexer_next`
    await sql`create table indexer_next.held ()`
    const lines: string[] = []
    const { signal } = new AbortController()
    const held = Promise.withResolvers<void>()
    // Block the launcher's statement, so that the restart happens during the statement.
    const holding = sql.begin(async (transaction) => {
      await transaction`lock table ${transaction(table)} in access exclusive mode`
      await held.promise
    })
    const showing = showIndex(behind, schema, [served], { signal, onLog: (line) => lines.push(line) })
    await until('the launcher waits for the table', async () => {
      const waiting = await sql`
      select from pg_stat_activity
      where datname = current_database() and wait_event_type = 'Lock' and query ilike ${`${statement}%`}`
      return waiting.length > 0
    })
    proxy.cut()
    await until('the launcher logs that the connection is lost', () => lines.length > 0)
    expect(lines[0]).toContain(`the views don't show ${schema} yet`)
    expect(await shown(sql)).toBeNull()
    held.resolve()
    await holding
    proxy.mend()
    await showing
    expect(await shown(sql)).toBe(schema)
    await proxy.close()
  },
)

test('behavior: rejects at once if the connection is lost during a statement, without waiting until the connection is closed', async () => {
  const { proxy, behind } = await createIndex()
  const isAsked = proxy.abandonAfter('pg_sleep')
  const asking = withSql(behind, (sql) => sql`select pg_sleep(0)`).catch((error: unknown) => error)
  await isAsked
  proxy.bury()
  proxy.cut()
  expect(await asking).toMatchObject({ code: 'ECONNRESET' })
  await proxy.close()
})

test('error: ends immediately if Ponder has ended', async () => {
  const { proxy, behind, served } = await createIndex()
  proxy.cut()
  const ended = new AbortController()
  const showing = showIndex(behind, schema, [served], { signal: ended.signal, onLog: () => ended.abort() })
  await expect(showing).rejects.toThrow()
  await proxy.close()
})
