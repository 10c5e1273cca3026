import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { ConfigError } from '@tollkeeper/runtime/env'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { type CutProxy, startCutProxy } from '../../../test/support/cutProxy.ts'
import { createTestDatabase } from '../../../test/support/database.ts'
import { hasPgbouncer, type PgBouncer, startPgbouncer } from '../../../test/support/pgbouncer.ts'
import { killAll, runCommand } from '../../../test/support/processes.ts'
import { until } from '../../../test/support/until.ts'
import { type Database, openDatabase, sessionSettings } from './database.ts'
import { migrateAt } from './migrate.ts'
import { connectQuery, isPooled, prepareDatabase, readDatabaseUrls } from './pooler.ts'

test('default: migrations and the indexer use DATABASE_DIRECT_URL', () => {
  const DATABASE_URL = 'postgres://pooler:6432/api'
  const DATABASE_DIRECT_URL = 'postgres://postgres:5432/tollkeeper'
  const alone = readDatabaseUrls({ DATABASE_URL })
  expect(alone).toEqual({ databaseUrl: DATABASE_URL, directDatabaseUrl: DATABASE_URL })
  expect(isPooled(alone)).toBe(false)
  const both = readDatabaseUrls({ DATABASE_URL, DATABASE_DIRECT_URL })
  expect(both).toEqual({ databaseUrl: DATABASE_URL, directDatabaseUrl: DATABASE_DIRECT_URL })
  expect(isPooled(both)).toBe(true)
})

test('default: deploy/pgbouncer.ini sets our limits for the api and the keeper', async () => {
  const file = await readFile(new URL('../../../deploy/pgbouncer.ini', import.meta.url), 'utf8')
  const entries = [...file.matchAll(/^(\w+) = .*connect_query='([^']*)'$/gm)].map(([, name, query]) => [
    name,
    query,
  ])
  const query = connectQuery(sessionSettings())
  expect(entries).toEqual([
    ['api', query],
    ['keeper', query],
  ])
})

/** Returns whether a statement failed because its session, or the pooler's session to Postgres, was cut. */
function isLoss(error: unknown): boolean {
  const { code = '', message } = error as Error & { code?: string }
  return /^(ECONN|CONNECTION_|08|57P)/.test(code) || /pgbouncer|server conn crashed/.test(message)
}

// Debian's PgBouncer in transaction mode with the committed settings, in front of this run's Postgres.
describe.skipIf(!hasPgbouncer)('behind PgBouncer', () => {
  let direct: string
  let postgres: CutProxy
  let postgresUrl: string
  let pooler: PgBouncer
  const opened: Database[] = []
  beforeAll(async () => {
    direct = await createTestDatabase()
    const server = new URL(direct)
    postgres = await startCutProxy(server.hostname, Number(server.port))
    server.host = `127.0.0.1:${postgres.port}`
    postgresUrl = server.href
    pooler = await startPgbouncer(postgresUrl, { keeperIdleInTransactionMs: 4_000 })
    await migrateAt(direct)
  })
  afterAll(async () => {
    await Promise.all(opened.map((sql) => sql.end({ timeout: 0 })))
    await pooler?.close()
    await postgres?.close()
  })

  function open(name: 'api' | 'keeper', url = pooler.urlOf(name)): Database {
    const sql = openDatabase({ url, applicationName: name, isPooled: true, silenceMs: 4_000 })
    opened.push(sql)
    return sql
  }
  const refusalOf = (work: Promise<unknown>) =>
    work.then(
      () => 'accepted',
      (error: unknown) => (error instanceof ConfigError ? error.message : error),
    )

  test('default: sessions have our search path and limits, and hundreds of concurrent transactions stay separate', async () => {
    const sql = open('api')
    await prepareDatabase(sql, { databaseUrl: pooler.urlOf('api'), directDatabaseUrl: direct })
    await sql`create table hop (id int primary key, taken int not null)`
    await sql`insert into hop select i, 0 from generate_series(1, 4) i`
    const pids = new Set<number>()
    await Promise.all(
      Array.from({ length: 200 }, (_, i) =>
        sql.begin(async (transaction) => {
          const [row] = await transaction<[{ pid: number }]>`
            select pg_backend_pid() as pid from hop where id = ${(i % 4) + 1} for update`
          pids.add(row.pid)
          await transaction`update hop set taken = taken + 1 where id = ${(i % 4) + 1}`
          const [after] = await transaction<[{ pid: number }]>`select pg_backend_pid() as pid`
          expect(after.pid).toBe(row.pid)
        }),
      ),
    )
    expect(pids.size).toBeGreaterThan(1)
    expect((await sql`select taken from hop`).map(({ taken }) => taken)).toEqual([50, 50, 50, 50])
    expect(await sql`show statement_timeout`).toEqual([{ statement_timeout: '8s' }])
  })

  test('behavior: the locks of a client that is frozen in a transaction are released after the limit, as without a pooler', async () => {
    const keeper = open('keeper')
    await keeper`create table held (id int primary key)`
    await keeper`insert into held values (1)`
    const isHeld = Promise.withResolvers<void>()
    const frozen = keeper
      .begin(async (transaction) => {
        await transaction`select id from held for update`
        isHeld.resolve()
        await new Promise(() => {})
      })
      .catch((error: unknown) => error)
    await Promise.race([isHeld.promise, frozen.then((error) => Promise.reject(error))])
    // If the lock were still held after 20 s, `lock_timeout` would reject this transaction.
    const other = openDatabase({ url: direct, max: 1, applicationName: 'another', limited: false })
    opened.push(other)
    await other.begin(async (transaction) => {
      await transaction`set local lock_timeout = 20000`
      expect(await transaction`select id from held for update`).toHaveLength(1)
    })
    expect(await frozen).toBeInstanceOf(Error)
  })

  test('behavior: answers the next queries after Postgres falls silent, and after the pooler is killed and restarted', async () => {
    const sql = open('api')
    const isAnswered = () => sql`select 1`.then(Boolean, () => false)
    const five = (seconds: number) =>
      Array.from({ length: 5 }, () => sql`select pg_sleep(${seconds})`.execute())
    await Promise.all(five(0.1))
    const waiting = Promise.allSettled(five(3))
    const other = openDatabase({ url: direct, max: 1, applicationName: 'another' })
    opened.push(other)
    await until('Postgres runs all five', async () => {
      const [row] = await other<[{ count: number }]>`
        select count(*)::int as count from pg_stat_activity
        where state = 'active' and query like 'select pg_sleep%' and datname = current_database()`
      return row.count === 5
    })
    postgres.abandon()
    expect((await waiting).map(({ status }) => status)).toEqual(Array(5).fill('rejected'))
    await until('it continues', isAnswered)
    await pooler.kill()
    expect(await isAnswered()).toBe(false)
    await pooler.start()
    await until('it continues again', isAnswered)
    expect(await sql`show transaction_timeout`).toEqual([{ transaction_timeout: '10s' }])
  })

  test('behavior: a statement never gets the types of a statement that another client pipelined', async () => {
    const single = await startPgbouncer(direct, {
      edit: (settings) => settings.replaceAll('pool_size=20', 'pool_size=1'),
    })
    const [one, other] = [0, 1].map(() => {
      const sql = openDatabase({ url: single.urlOf('api'), max: 1, applicationName: 'api', isPooled: true })
      opened.push(sql)
      return sql
    }) as [Database, Database]
    await Promise.all([one`select 1`, other`select 1`])
    // Provokes the mistake: the first statement has no parameters, so postgres.js by default sends the second one immediately after it. The second
    // statement contains a long list, which Postgres parses slowly. So the pooler learns that the first statement is done, and gives the session to
    // the other client, before the second statement is described.
    const long = one.unsafe('1, '.repeat(1_500))
    const [, [chain], [words]] = await Promise.all([
      one`select 'first', pg_sleep(0.02)`,
      one`select ${long} ${84_532}::integer as id`,
      other`select ${['a', 'b']}::text[] as all`,
    ])
    expect([chain?.id, words?.all]).toEqual([84_532, ['a', 'b']])
    await Promise.all([one.end({ timeout: 0 }), other.end({ timeout: 0 })])
    await single.close()
  })

  test('behavior: while sessions are cut, every statement gets its own answer or a connection error', async () => {
    const few = await startPgbouncer(postgresUrl, {
      edit: (settings) => settings.replaceAll('pool_size=20', 'pool_size=3'),
    })
    const sql = openDatabase({ url: few.urlOf('api'), max: 4, applicationName: 'api', isPooled: true })
    opened.push(sql)
    const statements: (() => Promise<[unknown, unknown]>)[] = [
      async () => [(await sql`select 84532 as one, pg_sleep(0.001)`)[0]?.one, 84_532],
      async () => [(await sql`select 'plain' as one`)[0]?.one, 'plain'],
      async () => [(await sql`select ${84_532}::integer as one`)[0]?.one, 84_532],
      async () => [(await sql`select ${['a', 'b']}::text[] as one`)[0]?.one, ['a', 'b']],
      async () => [(await sql`select ${'text'}::text as other, ${7n}::numeric as one`)[0]?.one, 7n],
      async () => [
        (await sql.begin((tx) => tx`select ${Buffer.from('ab')}::bytea as one`))[0]?.one,
        Buffer.from('ab'),
      ],
    ]
    let answered = 0
    const wrong: unknown[] = []
    async function ask(turn: number) {
      const statement = statements[turn % statements.length] as (typeof statements)[number]
      try {
        const [got, expected] = await statement()
        expect(got).toEqual(expected)
        answered += 1
      } catch (error) {
        if (!isLoss(error)) wrong.push(error)
      }
    }
    let turn = 0
    const isOver = () => answered >= 1_000 || wrong.length > 0
    const workers = Array.from({ length: 24 }, async () => {
      while (!isOver()) await ask(turn++)
    })
    for (let cuts = 0; cuts < 3; cuts++) {
      const before = answered
      await until('statements are answered', () => answered >= before + 150 || isOver(), 60_000)
      postgres.cut()
      postgres.mend()
    }
    await Promise.all(workers)
    expect(wrong).toEqual([])
    await sql.end({ timeout: 0 })
    await few.close()
  })

  test('error: if DATABASE_DIRECT_URL is missing, rejects a pooler with a message that names this variable, even if the pooler ignores our startup parameters', async () => {
    const lax = await startPgbouncer(direct, {
      edit: (settings) => `${settings}\nignore_startup_parameters = search_path, options\n`,
    })
    const expected =
      'DATABASE_DIRECT_URL: expected the URL of Postgres itself, for migrations and the indexer, in addition to a ' +
      'DATABASE_URL of a connection pooler, got a connection pooler'
    const folder = await mkdtemp(join(tmpdir(), 'tollkeeper-pooler-'))
    const DEPLOYMENTS_FILE = join(folder, 'deployments.json')
    const [usdc, batchSettlement, splitterFactory, tabSettlement] = ['11', '22', '33', '44'].map(
      (byte) => `0x${byte.repeat(20)}`,
    )
    const localhost = { usdc, batchSettlement, splitterFactory, tabSettlement, startBlock: 1 }
    await writeFile(DEPLOYMENTS_FILE, JSON.stringify({ localhost }))
    for (const url of [pooler.urlOf('api'), lax.urlOf('api')]) {
      expect(await refusalOf(migrateAt(url))).toBe(expected)
      const indexer = runCommand([process.execPath, 'indexer/main.ts'], {
        DATABASE_URL: url,
        DATABASE_DIRECT_URL: undefined,
        DEPLOYMENTS_FILE,
        NETWORKS: 'localhost',
        RPC_URL_LOCALHOST: 'http://127.0.0.1:9',
        PLATFORM_WALLET: `0x${'ab'.repeat(20)}`,
        INDEXER_PORT: '0',
      })
      expect(await indexer.exited).toBe(1)
      expect(indexer.output()).toBe(expected)
      await killAll(indexer)
    }
    await lax.close()
    await rm(folder, { recursive: true })
  })

  test('error: rejects a pooler whose sessions lack a limit, and explains how to set it', async () => {
    const careless = await startPgbouncer(direct, {
      edit: (settings) =>
        settings.replaceAll('set transaction_timeout = 10000', 'set transaction_timeout = 0'),
    })
    const sql = open('api', careless.urlOf('api'))
    const urls = { databaseUrl: careless.urlOf('api'), directDatabaseUrl: direct }
    expect(await refusalOf(prepareDatabase(sql, urls))).toBe(
      `DATABASE_URL: expected a pooler that runs "${connectQuery(sessionSettings())}" in each new session, got transaction_timeout = 0`,
    )
    await sql.end({ timeout: 0 })
    await careless.close()
  })
})
