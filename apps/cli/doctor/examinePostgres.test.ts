import { recordBackup } from '@tollkeeper/ledger/store/backups'
import { openDatabase } from '@tollkeeper/ledger/store/database'
import { migrateAt } from '@tollkeeper/ledger/store/migrate'
import { networkByName } from '@tollkeeper/sdk/protocol/networks'
import { utcDay } from '@tollkeeper/sdk/protocol/time'
import { afterAll, describe, expect, onTestFinished, test } from 'vitest'
import { createMigratedDatabase } from '../../../test/support/database.ts'
import { until } from '../../../test/support/until.ts'
import { startPostgres } from '../../devstack/stack/postgres.ts'
import type { Check } from './check.ts'
import {
  examinePostgres,
  examineSize,
  type PostgresLimits,
  postgresChecks,
  withinLimit,
} from './examinePostgres.ts'
import { examineTabBudget } from './examineTabBudget.ts'

const open = (at: string) => openDatabase({ url: at, max: 1, applicationName: 'test', limited: false })
const url = await createMigratedDatabase()
const sql = open(url)
afterAll(() => sql.end())

/** The limits that are used in production. Each test lowers the limit that it tests. */
const usual: PostgresLimits = {
  statementMs: 5_000,
  walBytes: 1e9,
  deadRows: 100_000,
  oldTransactions: 5e8,
  tooOldTransactions: 1.5e9,
  longTransactionSeconds: 900,
  busyShare: 1,
  backupHours: 26,
}
const real = [{ network: networkByName('base') }]
const testNetworks = [{ network: networkByName('base-sepolia') }]

async function examine(
  limits: Partial<PostgresLimits> = {},
  networks = real,
): Promise<Record<string, Check>> {
  const checks: Record<string, Check> = {}
  for await (const check of examinePostgres(sql, networks, { ...usual, ...limits }))
    checks[check.name] = check
  return checks
}

test('default: finds no problem in a new database', async () => {
  const checks = await examine()
  expect(Object.keys(checks)).toEqual(postgresChecks)
  expect(Object.values(checks).filter(({ status }) => status !== 'ok')).toEqual([])
  expect(checks['Postgres: disk']?.found).toMatch(
    /^[\d.]+ MB, grows about 0 B a day by the sales of the last 7 days; SQL can't show the free disk space/,
  )
  expect(checks.backup?.found).toBe('none is recorded, and the database is 0 hours old')
})

test('behavior: estimates the growth from the sales of the last week, except those on tabs', async () => {
  const provider = `prov_${'0'.repeat(32)}`
  await sql`insert into provider (id, name) values (${provider}, 'Weather')`
  const day = (daysAgo: number, payments: number, tabs: number) => ({
    provider_id: provider,
    period: 'day',
    starts_at: new Date(Date.now() - daysAgo * 86_400_000),
    chain_id: 8453,
    payee: `0x${'1'.repeat(40)}`,
    payments,
    tab_payments: tabs,
    gross: 0,
    fee: 0,
    voided_payments: 0,
    settled_payments: 0,
    failed_payments: 0,
    settled_net: 0,
    settled_fee: 0,
    failed_net: 0,
  })
  await sql`insert into revenue ${sql([day(1, 8_000, 1_000), day(3, 7_000, 0), day(9, 70_000, 0)])}`
  // 14,000 payments in 7 days, with 6.6 kB each.
  expect((await examine())['Postgres: disk']?.found).toContain('grows about 13.2 MB a day')
})

test('behavior: warns of WAL that fills the disk because of an unused replication slot or failing archiving', async () => {
  // The slot keeps hardly any WAL here, so one case uses a limit below 0 bytes.
  const settings = {
    wal_level: 'replica',
    max_wal_senders: '2',
    archive_mode: 'on',
    archive_command: 'false',
  }
  const server = await startPostgres({ fast: true, settings })
  onTestFinished(server.close)
  await migrateAt(server.url)
  const own = open(server.url)
  onTestFinished(() => own.end())
  const look = async (walBytes: number) =>
    withinLimit(own, 'disk', (tx) => examineSize(tx, { ...usual, walBytes }), usual)
  expect((await look(1e9)).status).toBe('ok')
  await own`select pg_create_physical_replication_slot('gone', true)`
  expect(await look(-1)).toMatchObject({
    status: 'warn',
    found: expect.stringMatching(/the unused slot gone keeps .* of WAL$/),
    advice: expect.stringMatching(/pg_drop_replication_slot\('gone'\)/),
  })
  await own`select pg_switch_wal()`
  await until('archiving has failed', async () => {
    const [{ failed }] = await own<[{ failed: bigint }]>`select failed_count as failed from pg_stat_archiver`
    return failed > 0n
  })
  expect(await look(1e9)).toMatchObject({
    status: 'warn',
    found: expect.stringMatching(/archiving WAL failed at \S+Z$/),
    advice: expect.stringMatching(/archive_command/),
  })
})

test('behavior: warns of dead rows that no vacuum removes', async () => {
  await sql`alter table provider set (autovacuum_enabled = false)`
  await sql`insert into provider (id, name) select 'prov_' || lpad(n::text, 32, '0'), 'x' from generate_series(1, 200) n`
  await sql`delete from provider where id > ${`prov_${'0'.repeat(29)}050`}`
  await sql`select pg_stat_force_next_flush()`
  expect((await examine({ deadRows: 100 }))['Postgres: vacuum']).toMatchObject({
    status: 'warn',
    found: expect.stringMatching(/provider has 150 dead rows, 75% of its rows, never vacuumed$/),
  })
  expect((await examine())['Postgres: vacuum']?.status).toBe('ok')
})

test('behavior: warns of old transaction ids, and fails before Postgres refuses to write', async () => {
  const at = async (limits: Partial<PostgresLimits>) => (await examine(limits))['Postgres: vacuum']
  expect(await at({ oldTransactions: -1 })).toMatchObject({
    status: 'warn',
    found: expect.stringMatching(
      /^the oldest transaction id is [\d.]+ million transactions old \(limit: 2,147 million\)$/,
    ),
    advice: expect.stringMatching(/refuses every write/),
  })
  expect((await at({ oldTransactions: -1, tooOldTransactions: -1 }))?.status).toBe('fail')
})

test('behavior: warns of a long transaction, and of too few free sessions', async () => {
  const other = open(url)
  onTestFinished(() => other.end())
  const { promise, resolve } = Promise.withResolvers<void>()
  const begun = Promise.withResolvers<void>()
  const long = other.begin(async (tx) => {
    await tx`select 1`
    begun.resolve()
    await promise
  })
  await begun.promise
  const look = async (limits: Partial<PostgresLimits>) => (await examine(limits))['Postgres: sessions']
  expect(await look({ longTransactionSeconds: 0 })).toMatchObject({
    status: 'warn',
    found: expect.stringMatching(/a transaction of \S+ has been open for \d+ minutes$/),
    advice: expect.stringMatching(/pg_terminate_backend\(\d+\)/),
  })
  resolve()
  await long
  expect(await look({ busyShare: 0 })).toMatchObject({
    status: 'warn',
    found: expect.stringMatching(/^\d+ of \d+ sessions in use$/),
  })
})

test('behavior: warns if the newest backup is old or if there is no backup, but not on test networks', async () => {
  const look = async (limits: Partial<PostgresLimits>, networks = real) =>
    (await examine(limits, networks)).backup
  expect(await look({ backupHours: -1 })).toMatchObject({
    status: 'warn',
    advice: expect.stringMatching(/backup record/),
  })
  const takenAt = new Date(Date.now() - 27 * 3_600_000)
  await recordBackup(sql, { kind: 'base', takenAt })
  expect(await look({})).toMatchObject({ status: 'warn', found: 'the newest base is 27 hours old' })
  expect(await look({}, testNetworks)).toMatchObject({
    status: 'ok',
    found: expect.stringMatching(/only test networks/),
  })
  await recordBackup(sql, { kind: 'dump', takenAt: null })
  expect(await look({})).toMatchObject({ status: 'ok', found: 'the newest dump is 0 hours old' })
})

test('behavior: cancels a query that takes too long, and runs the other queries', async () => {
  const slow = await withinLimit(
    sql,
    'slow',
    async (tx) => {
      await tx`select pg_sleep(60)`
      throw new Error('expected a timeout')
    },
    { ...usual, statementMs: 50 },
  )
  expect(slow).toMatchObject({ status: 'warn', found: expect.stringMatching(/can't be read: .*timeout/) })
  expect((await examine()).backup?.status).toBe('ok')
})

describe('the budget of tabs', () => {
  const day = utcDay(new Date())
  const lend = async (money: 'real' | 'test', loans: [payer: string, amount: number][]) => {
    const lent = loans.reduce((sum, [, amount]) => sum + amount, 0)
    await sql`delete from tab_loan`
    await sql`delete from tab_budget`
    await sql`insert into tab_budget (day, money, lent, budget) values (${day}, ${money}, ${lent}, 100000000)`
    for (const [index, [payer, amount]] of loans.entries()) {
      const tab = `tab_${`${index}`.padStart(32, '0')}`
      await sql`insert into tab_loan ${sql({ payer: `0x${payer.repeat(40)}`, tab_id: tab, day, money, amount })}`
    }
  }
  const look = (env: NodeJS.ProcessEnv = {}, networks = real) => examineTabBudget(sql, env, networks)

  test('default: reports how much of today’s budget is owed, by how many payers, and who owes the most', async () => {
    expect(await look({ TAB_BUDGET_USDC: '50' })).toMatchObject({
      status: 'ok',
      found: "no part of today's budget of 50.000000 USDC is owed; fees of the last 7 days: 0.000000 USDC",
    })
    await lend('real', [
      ['a', 3_000_000],
      ['a', 4_000_000],
      ['b', 5_000_000],
    ])
    expect(await look()).toMatchObject({
      status: 'ok',
      found: expect.stringMatching(
        /^12% of today's budget of 100\.000000 USDC is owed by 2 payers, the largest part by 0xa{40}: 7\.000000 USDC;/,
      ),
    })
    expect(await look({ TABS: 'off' })).toMatchObject({ status: 'ok', found: 'no tabs (TABS=off)' })
  })

  test('behavior: warns if the budget is nearly used up, fails if it is used up, and names a payer who alone used up the budget', async () => {
    await lend('real', [
      ['a', 30_000_000],
      ['b', 25_000_000],
      ['c', 25_000_000],
    ])
    expect(await look()).toMatchObject({
      status: 'warn',
      advice: expect.stringMatching(/raise TAB_BUDGET_USDC/),
    })
    await lend('real', [
      ['a', 90_000_000],
      ['b', 8_000_000],
    ])
    expect(await look()).toMatchObject({
      status: 'fail',
      advice: expect.stringMatching(/^one payer uses up the budget/),
    })
    await lend('real', [['a', 79_000_000]])
    expect(await look()).toMatchObject({ status: 'ok' })
  })

  test('behavior: counts testnet funds only if all networks are test networks', async () => {
    await lend('test', [['a', 100_000_000]])
    expect((await look()).found).toMatch(/^no part of today/)
    expect(await look({}, testNetworks)).toMatchObject({ status: 'fail' })
  })
})
