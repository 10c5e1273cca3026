import { ConfigError } from '@tollkeeper/runtime/env'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { type CutProxy, startCutProxy } from '../../../test/support/cutProxy.ts'
import { createTestDatabase } from '../../../test/support/database.ts'
import { until } from '../../../test/support/until.ts'
import {
  type Database,
  type DatabaseOptions,
  openDatabase,
  type Queryable,
  requirePostgres,
  requirePostgresAt,
  sessionSettings,
} from './database.ts'

let url: string
const proxies: CutProxy[] = []
beforeAll(async () => {
  url = await createTestDatabase()
  const sql = openDatabase({ url, max: 1, applicationName: 'test' })
  await sql`create schema tollkeeper`
  await sql.end()
})
afterAll(() => Promise.all(proxies.map((proxy) => proxy.close())))

async function startProxy(to = url) {
  const behind = new URL(to)
  const proxy = await startCutProxy(behind.hostname, Number(behind.port))
  proxies.push(proxy)
  behind.hostname = '127.0.0.1'
  behind.port = String(proxy.port)
  return { proxy, url: behind.href }
}

async function openBehindProxy(options: Partial<DatabaseOptions> = {}) {
  const { proxy, url } = await startProxy(options.url)
  return { proxy, sql: openDatabase({ applicationName: 'behind a proxy', ...options, url }) }
}

/** Collects uncaught errors, which would end the process, until the end of the block. */
function watchUncaught() {
  const errors: unknown[] = []
  const onUncaught = (error: unknown) => errors.push(error)
  process.on('uncaughtException', onUncaught).on('unhandledRejection', onUncaught)
  const stop = () => process.off('uncaughtException', onUncaught).off('unhandledRejection', onUncaught)
  return { errors, [Symbol.dispose]: () => void stop() }
}

const isAnswered = (sql: Database) =>
  sql`select 1`.then(
    () => true,
    () => false,
  )

/** Short, so that a lost connection is noticed soon. */
const silenceMs = 2_000

// These tests run concurrently, because each one mainly waits for a limit. Each has a separate proxy.
test.concurrent('behavior: silent connections are replaced, and no query waits forever', async () => {
  const max = 3
  const { proxy, sql } = await openBehindProxy({ max, silenceMs })
  const all = () => Promise.all(Array.from({ length: max }, () => sql`select pg_sleep(0.1)`))
  await all()
  const waiting = Promise.allSettled([all(), sql.begin(async (transaction) => transaction`select 1`)])
  proxy.abandon()
  expect(await waiting).toEqual([
    expect.objectContaining({ status: 'rejected' }),
    expect.objectContaining({ status: 'rejected' }),
  ])
  let failed = 0
  while (!(await isAnswered(sql))) failed += 1
  expect(failed).toBeLessThanOrEqual(max)
  await sql.end({ timeout: 1 })
})

test.concurrent('error: the start doesn’t wait forever for a silent server', async () => {
  const { proxy, url: proxied } = await startProxy()
  proxy.abandonAfter('server_version_num')
  await expect(requirePostgresAt(proxied, silenceMs)).rejects.toThrow(/silent/)
})

test.concurrent('behavior: if a client is lost in a transaction, the server releases the client’s locks before the client’s lease expires', async () => {
  const leaseMs = 2_000
  const { proxy, sql: lost } = await openBehindProxy({ max: 1, idleInTransactionMs: leaseMs, silenceMs })
  const other = openDatabase({ url, max: 1, applicationName: 'another', limited: false })
  await other`create table lock_test (id int primary key)`
  await other`insert into lock_test values (1)`
  const held = Promise.withResolvers<void>()
  const frozen = lost
    .begin(async (transaction) => {
      await transaction`update lock_test set id = 1`
      held.resolve()
      await new Promise(() => {})
    })
    .catch((error: unknown) => error)
  await Promise.race([held.promise, frozen.then((error) => Promise.reject(error))])
  proxy.abandon()
  // `lock_timeout` would reject this if the lock were held for longer than the lease and the wait together.
  await other.begin(async (transaction) => {
    await transaction`set local lock_timeout = ${transaction.unsafe(String(3 * leaseMs))}`
    await transaction`update lock_test set id = 1`
  })
  expect(await frozen).toBeInstanceOf(Error)
  await Promise.all([lost.end({ timeout: 1 }), other.end({ timeout: 1 })])
})

test.concurrent('behavior: the server releases the locks of a client that is lost between the messages of one statement', async () => {
  const limitMs = 4_000
  const { proxy, sql: lost } = await openBehindProxy({ max: 1, idleInTransactionMs: limitMs / 2, silenceMs })
  const other = openDatabase({ url, max: 1, applicationName: 'another', limited: false })
  await other`create table half_statement (id int primary key)`
  await other`insert into half_statement values (1)`
  proxy.abandonAfter('half a statement')
  const frozen = lost
    .begin(async (transaction) => {
      await transaction`select id from half_statement for update`
      // The statement is parsed and described, but the messages that would execute it, and their Sync, are never sent.
      await transaction`select ${'half a statement'}::text as "half a statement"`
    })
    .catch((error: unknown) => error)
  const state = async () =>
    (
      await other`select state, wait_event from pg_stat_activity
      where query like '%half a statement"%' and pid <> pg_backend_pid()`
    )[0]
  let seen: Awaited<ReturnType<typeof state>>
  await until('the server waits for the rest', async () => {
    seen = await state()
    return seen?.wait_event === 'ClientRead'
  })
  // The server counts the session as active, so only `transaction_timeout` ends it.
  expect(seen).toMatchObject({ state: 'active' })
  await other.begin(async (transaction) => {
    await transaction`set local lock_timeout = ${transaction.unsafe(String(3 * limitMs))}`
    await transaction`select id from half_statement for update`
  })
  expect(await frozen).toBeInstanceOf(Error)
  await Promise.all([lost.end({ timeout: 1 }), other.end({ timeout: 1 })])
})

test.concurrent('behavior: the server cancels a statement that takes too long and keeps the session; without limits the statement continues', async () => {
  const sql = openDatabase({ url, max: 1, applicationName: 'limited' })
  const [before] = await sql<{ pid: number }[]>`select pg_backend_pid() as pid`
  await expect(sql`select pg_sleep(60)`).rejects.toMatchObject({ code: '57014' })
  const [after] = await sql<{ pid: number }[]>`select pg_backend_pid() as pid`
  expect(after).toEqual(before)
  await sql.end({ timeout: 1 })

  const unlimited = openDatabase({ url, max: 1, applicationName: 'unlimited', limited: false })
  expect(await unlimited`show statement_timeout`).toEqual([{ statement_timeout: '0' }])
  await unlimited.end({ timeout: 1 })
})

test.concurrent('behavior: after connections are cut in the middle of transactions and savepoints, all transactions end and later transactions work', async ({
  expect,
}) => {
  using uncaught = watchUncaught()
  const { proxy, sql } = await openBehindProxy({ url: await createTestDatabase(), max: 5 })
  await sql`create schema tollkeeper`
  await sql`create table cut_test (burst int, part int)`
  let settled = 0
  for (let burst = 0; burst < 10; burst++) {
    const isCut = Promise.withResolvers<void>()
    // After the cut, some transactions send a query immediately, and some send one later. The others only send the rollback or commit of postgres.js
    // itself.
    const transactions = Array.from({ length: 12 }, (_, at) =>
      sql.begin(async (transaction) => {
        await transaction`insert into cut_test values (${burst}, 1)`
        await transaction
          .savepoint(async (savepoint) => {
            await savepoint`select pg_sleep(${(at % 4) * 0.01})`
            if (at % 3 === 0) await isCut.promise
            if (at === 6) await new Promise((resolve) => setTimeout(resolve, 1_200))
            await Promise.all([savepoint`select ${at}::int`, savepoint`select ${'x'.repeat(at * 500)}`])
          })
          .catch((error: unknown) => {
            if (at % 2 === 0) throw error
          })
        await transaction`insert into cut_test values (${burst}, 2)`
      }),
    )
    const queries = Array.from({ length: 12 }, (_, at) => sql`select ${at}::int, pg_sleep(0.01)`.execute())
    const all = Promise.allSettled([...transactions, ...queries])
    await Promise.race([queries[burst], transactions[burst]]).catch(() => {})
    proxy.cut()
    isCut.resolve()
    const meanwhile = await isAnswered(sql)
    expect(meanwhile).toBe(false)
    proxy.mend()
    settled += (await all).length
    expect(await isAnswered(sql)).toBe(true)
  }
  expect(settled).toBe(240)
  // The next session executes no statement of a transaction that was cut.
  expect(await sql`select burst from cut_test group by burst having count(*) % 2 = 1`).toEqual([])
  // Other databases belong to other tests.
  const isLeftOpen = sql`datname = current_database() and state like 'idle in transaction%'`
  await expect.poll(() => sql`select 1 from pg_stat_activity where ${isLeftOpen}`).toEqual([])
  await sql.end({ timeout: 1 })
  expect(uncaught.errors).toEqual([])
})

// In each new session, postgres.js first queries the database's types.
test.concurrent.each([
  ['has not started', 'query', 'behind a proxy'],
  ['has not started', 'transaction', 'behind a proxy'],
  ['is querying its types', 'query', 'typcategory'],
  ['is querying its types', 'transaction', 'typcategory'],
] as const)(
  'behavior: while a pool is replaced and another session %s, that session’s %s is rejected and the process continues',
  async (_, kind, text) => {
    using uncaught = watchUncaught()
    const { proxy, sql } = await openBehindProxy({ max: 2 })
    const isBusy = Promise.withResolvers<void>()
    const isStarting = Promise.withResolvers<void>()
    const cut = sql
      .begin(async (transaction) => {
        await transaction`select 1`
        isBusy.resolve()
        await isStarting.promise
        proxy.loseAnswersTo('cut here', 1)
        await transaction`select 'cut here'`
      })
      .catch((error: unknown) => error)
    await isBusy.promise
    const isAbandoned = proxy.abandonAfter(text)
    const starting = (
      kind === 'query' ? sql`select 2`.execute() : sql.begin((transaction) => transaction`select 2`)
    ).catch((error: unknown) => error)
    await isAbandoned
    isStarting.resolve()
    expect(await cut).toMatchObject({ code: 'ECONNRESET' })
    expect(await starting).toMatchObject({ code: 'ECONNRESET' })
    expect(await isAnswered(sql)).toBe(true)
    await sql.end({ timeout: 1 })
    expect(uncaught.errors).toEqual([])
  },
)

test.concurrent('behavior: the process continues if a pool is closed while a new session is querying its types', async () => {
  using uncaught = watchUncaught()
  const { proxy, sql } = await openBehindProxy({ max: 2 })
  const isAbandoned = proxy.abandonAfter('typcategory')
  const starting = sql`select 1`.catch((error: unknown) => error)
  await isAbandoned
  await sql.end({ timeout: 0.1 })
  expect(await starting).toBeInstanceOf(Error)
  expect(uncaught.errors).toEqual([])
})

test.concurrent('behavior: the first query after an outage is answered, regardless of the number of failed connections', async () => {
  const { proxy, sql } = await openBehindProxy()
  proxy.cut()
  for (let i = 0; i < 20; i++) expect(await isAnswered(sql)).toBe(false)
  proxy.mend()
  // After so many failures, postgres.js itself would wait for 20 s before it connects again.
  const query = isAnswered(sql)
  const late = new Promise((resolve) => setTimeout(resolve, 15_000, 'late').unref())
  expect(await Promise.race([query, late])).toBe(true)
  await sql.end({ timeout: 1 })
})

test('error: a server that is too old is rejected with a message that names its version, before any other query', async () => {
  const sql = openDatabase({ url, max: 1, applicationName: 'start', limited: false })
  await requirePostgres(sql)
  const refusal = await requirePostgres(sql, 99).catch((error: unknown) => error)
  expect(refusal).toBeInstanceOf(ConfigError)
  expect(String(refusal)).toMatch(
    /^ConfigError: DATABASE_URL: expected a server of Postgres 99 or later, got Postgres \d/,
  )
  await sql.end({ timeout: 1 })
})

test.concurrent('behavior: a statement that is repeated because its plan changed gets its own rows, and so do the statements after it', async () => {
  const sql = openDatabase({ url, max: 1, applicationName: 'test' })
  const other = openDatabase({ url, max: 1, applicationName: 'another' })
  await other`create table changing (id int)`
  await other`insert into changing values (1)`
  const all = () => sql`select * from changing where id = ${1}`
  const number = async (n: number) => (await sql`select ${n}::integer as number`)[0]?.number
  await Promise.all([all(), number(1)])
  await other`alter table changing add column word text default 'new'`
  // Each of the four loops sends its next query as soon as it has an answer, so there is always a query to send while the changed statement is
  // repeated.
  const numbers = Promise.all(
    Array.from({ length: 4 }, async () => {
      for (let n = 0; n < 50; n++) expect(await number(n)).toBe(n)
    }),
  )
  expect((await all())[0]).toEqual({ id: 1, word: 'new' })
  await numbers
  await Promise.all([sql.end({ timeout: 1 }), other.end({ timeout: 1 })])
})

test.concurrent('behavior: after a statement fails halfway through its rows, the next statement gets all its rows, also in a transaction', async () => {
  const sql = openDatabase({ url, max: 1, applicationName: 'test' })
  // Two rows arrive before the error.
  const failMidway = (on: Queryable) => on`select 1 / (3 - n) from generate_series(1, 4) n`
  const rows = (on: Queryable) => on`select n from generate_series(1, 3) n`
  const expected = [{ n: 1 }, { n: 2 }, { n: 3 }]
  try {
    await expect(failMidway(sql)).rejects.toThrow('division by zero')
    expect([...(await rows(sql))]).toEqual(expected)
    await expect(failMidway(sql)).rejects.toThrow('division by zero')
    await sql.begin(async (tx) => {
      expect([...(await rows(tx))]).toEqual(expected)
      await expect(tx.savepoint((inner) => failMidway(inner))).rejects.toThrow('division by zero')
      expect([...(await rows(tx))]).toEqual(expected)
      await tx.savepoint(async (inner) => expect([...(await rows(inner))]).toEqual(expected))
    })
    await expect(failMidway(sql)).rejects.toThrow('division by zero')
    expect([...(await sql.unsafe('select n from generate_series(1, 3) n'))]).toEqual(expected)
  } finally {
    await sql.end()
  }
})

test.each([undefined, 10_000, 5_000, 3_000, 1_000, 50])(
  'behavior: if a client may be silent for %s ms, the limit for locks is shorter than the limit for statements, and the limit for statements is shorter than the limit for transactions',
  (idleMs) => {
    const limits = sessionSettings(idleMs)
    expect(limits.lock_timeout).toBeGreaterThan(0)
    expect(limits.lock_timeout).toBeLessThan(limits.statement_timeout)
    expect(limits.statement_timeout).toBeLessThan(limits.transaction_timeout)
  },
)
