import { findBackups, readCreation } from '@tollkeeper/ledger/store/backups'
import type { Database, Queryable } from '@tollkeeper/ledger/store/database'
import { ownCommand } from '@tollkeeper/runtime/ownCommand'
import { isoSeconds } from '@tollkeeper/sdk/protocol/time'
import { type Check, fail, ok, reasonOf, warn } from './check.ts'
import type { ExaminedNetwork } from './networks.ts'

const sizeCheck = 'Postgres: disk'
const vacuumCheck = 'Postgres: vacuum'
const sessionsCheck = 'Postgres: sessions'
const backupCheck = 'backup'

/** The values at which the checks warn. */
export type PostgresLimits = typeof usualLimits
const usualLimits = {
  /** Maximum time in ms of a query to the database's own statistics. */
  statementMs: 5_000,
  /** Maximum bytes of WAL that an unused replication slot may keep on the disk. */
  walBytes: 1_000_000_000,
  /** Minimum number of dead rows in a table. The check warns only if they are also at least 30% of the table's rows. */
  deadRows: 100_000,
  /**
   * Maximum age of the oldest transaction id, in transactions. Postgres rejects writes at 2^31 transactions, minus a reserve. It vacuums
   * automatically at 200 million.
   */
  oldTransactions: 500_000_000,
  tooOldTransactions: 1_500_000_000,
  longTransactionSeconds: 900,
  busyShare: 0.8,
  /** Maximum age in hours of the newest backup: one day, plus two hours in which the next backup runs. */
  backupHours: 26,
}

/** Bytes of a payment, used while there are too few payments to measure (docs/postgres.md, Disk). */
const usualPaymentBytes = 6_600
const measuredPayments = 10_000
/** Number of days of sales from which to estimate the growth. */
const growthDays = 7

/** Names of the checks, so that callers can report them as skipped. */
export const postgresChecks = [sizeCheck, vacuumCheck, sessionsCheck, backupCheck]

/** Checks limits of a database that are reached only after weeks: disk, transaction ids, sessions and the age of the backup. */
export async function* examinePostgres(
  database: Database,
  networks: readonly Pick<ExaminedNetwork, 'network'>[],
  limits: PostgresLimits = usualLimits,
): AsyncGenerator<Check> {
  const hasRealMoney = networks.some(({ network }) => !network.testnet)
  const checks: [string, Examine][] = [
    [sizeCheck, examineSize],
    [vacuumCheck, examineVacuum],
    [sessionsCheck, examineSessions],
    [backupCheck, (sql) => examineBackup(sql, limits, hasRealMoney)],
  ]
  for (const [name, examine] of checks) yield await withinLimit(database, name, examine, limits)
}

type Examine = (sql: Queryable, limits: PostgresLimits) => Promise<Check>

/** Runs a check. If the check takes too long, or this user may not run its query, the other checks still run. */
export async function withinLimit(
  database: Database,
  name: string,
  examine: Examine,
  limits: PostgresLimits = usualLimits,
): Promise<Check> {
  try {
    const check = await database.begin('read only', async (sql) => {
      await sql`select set_config('statement_timeout', ${`${limits.statementMs}`}, true)`
      return examine(sql, limits)
    })
    return check as Check
  } catch (error) {
    return warn(
      name,
      `it can't be read: ${reasonOf(error)}`,
      "check it with the tools of the database's host",
    )
  }
}

/** Reports the size of the database, its growth, and what keeps WAL on its disk. */
export async function examineSize(sql: Queryable, { walBytes }: PostgresLimits): Promise<Check> {
  const [row] = await sql<[{ size: bigint; ours: bigint; payments: number; sold: bigint }]>`
    select pg_database_size(current_database()) as size,
      (select coalesce(sum(pg_total_relation_size(c.oid)), 0) from pg_class c
        where c.relnamespace = 'tollkeeper'::regnamespace and c.relkind = 'r') as ours,
      (select greatest(reltuples, 0) from pg_class where oid = 'tollkeeper.payment'::regclass)::float8 as payments,
      (select coalesce(sum(payments - tab_payments), 0) from revenue
        where period = 'day' and starts_at >= now() - make_interval(days => ${growthDays})) as sold`
  const perPayment = row.payments >= measuredPayments ? Number(row.ours) / row.payments : usualPaymentBytes
  const daily = (Number(row.sold) / growthDays) * perPayment
  const found =
    `${formatBytes(Number(row.size))}, grows about ${formatBytes(daily)} a day by the sales of the last ${growthDays} days; ` +
    "SQL can't show the free disk space: watch it at the host"
  const slots = await sql<{ name: string; kept: bigint }[]>`
    select slot_name as name, pg_wal_lsn_diff(pg_current_wal_lsn(), restart_lsn)::bigint as kept
    from pg_replication_slots where not active and restart_lsn is not null order by 2 desc`
  const [slot] = slots.filter(({ kept }) => kept > walBytes)
  if (slot) {
    const advice = `start the slot's standby, or drop the slot (select pg_drop_replication_slot('${slot.name}')): its WAL fills the disk`
    return warn(
      sizeCheck,
      `${found}; the unused slot ${slot.name} keeps ${formatBytes(Number(slot.kept))} of WAL`,
      advice,
    )
  }
  const [archiver] = await sql<{ failedAt: Date | null }[]>`
    select last_failed_time as "failedAt" from pg_stat_archiver
    where current_setting('archive_mode') <> 'off'
      and last_failed_time > coalesce(last_archived_time, '-infinity')`
  if (archiver?.failedAt) {
    const since = isoSeconds(Math.floor(archiver.failedAt.getTime() / 1000))
    const advice =
      "see the errors of archive_command in Postgres' log: until it succeeds, WAL fills the disk, and backups lack all newer changes"
    return warn(sizeCheck, `${found}; archiving WAL failed at ${since}`, advice)
  }
  return ok(sizeCheck, found)
}

async function examineVacuum(sql: Queryable, limits: PostgresLimits): Promise<Check> {
  const [{ age }] = await sql<[{ age: number }]>`
    select age(datfrozenxid)::float8 as age from pg_database where datname = current_database()`
  const dead = await sql<{ name: string; dead: bigint; share: number; at: Date | null }[]>`
    select relname as name, n_dead_tup as dead,
      n_dead_tup::float8 / greatest(n_live_tup + n_dead_tup, 1) as share,
      greatest(last_autovacuum, last_vacuum) as at
    from pg_stat_user_tables where schemaname in ('tollkeeper', 'tabs') and n_dead_tup >= ${limits.deadRows}
    order by n_dead_tup desc limit 1`
  const found = `the oldest transaction id is ${formatMillions(age)} million transactions old (limit: 2,147 million)`
  const advice =
    'find what delays vacuum: a long transaction, an unused replication slot, or autovacuum that is off or too slow'
  if (age > limits.oldTransactions) {
    const judge = age > limits.tooOldTransactions ? fail : warn
    return judge(vacuumCheck, found, `${advice}; at the limit, Postgres refuses every write`)
  }
  const [table] = dead
  if (table === undefined || table.share < 0.3) return ok(vacuumCheck, found)
  const when = table.at
    ? `last vacuumed ${isoSeconds(Math.floor(table.at.getTime() / 1000))}`
    : 'never vacuumed'
  const rows = `${table.name} has ${table.dead} dead rows, ${Math.round(table.share * 100)}% of its rows, ${when}`
  return warn(vacuumCheck, `${found}; ${rows}`, advice)
}

async function examineSessions(sql: Queryable, limits: PostgresLimits): Promise<Check> {
  const [row] = await sql<
    [{ used: number; most: number; pid: number | null; seconds: number | null; application: string | null }]
  >`
    select (select count(*)::int from pg_stat_activity where backend_type = 'client backend') as used,
      current_setting('max_connections')::int - current_setting('superuser_reserved_connections')::int as most,
      long.pid, long.seconds, long.application
    from (select 1) one left join lateral (
      select pid, extract(epoch from now() - xact_start)::float8 as seconds, application_name as application
      from pg_stat_activity where xact_start is not null and pid <> pg_backend_pid() and backend_type = 'client backend'
      order by xact_start limit 1
    ) long on true`
  const found = `${row.used} of ${row.most} sessions in use`
  if (row.seconds !== null && row.seconds > limits.longTransactionSeconds) {
    const long = `a transaction of ${row.application || 'an unnamed session'} has been open for ${Math.round(row.seconds / 60)} minutes`
    const advice = `it delays vacuum: end the transaction if no one needs it (select pg_terminate_backend(${row.pid}))`
    return warn(sessionsCheck, `${found}; ${long}`, advice)
  }
  if (row.used >= row.most * limits.busyShare) {
    const advice =
      'put PgBouncer in front (docs/postgres.md), lower API_DATABASE_POOL, or raise max_connections'
    return warn(sessionsCheck, found, advice)
  }
  return ok(sessionsCheck, found)
}

async function examineBackup(
  sql: Queryable,
  { backupHours }: PostgresLimits,
  hasRealMoney: boolean,
): Promise<Check> {
  const [newest] = await findBackups(sql, 1)
  const advice = `let the backup job end with: ${ownCommand} backup record --kind dump (docs/deployment.md, What to back up)`
  const since = newest?.takenAt ?? (await readCreation(sql))
  const hours = (Date.now() - since.getTime()) / 3_600_000
  const found = newest
    ? `the newest ${newest.kind} is ${Math.floor(hours)} hours old`
    : `none is recorded, and the database is ${Math.floor(hours)} hours old`
  if (hours <= backupHours) return ok(backupCheck, found)
  return hasRealMoney
    ? warn(backupCheck, found, advice)
    : ok(backupCheck, `${found}; only test networks are served`)
}

function formatBytes(bytes: number): string {
  const units = ['B', 'kB', 'MB', 'GB', 'TB']
  const power = bytes < 1 ? 0 : Math.min(Math.floor(Math.log10(bytes) / 3), units.length - 1)
  const value = bytes / 1000 ** power
  return `${power === 0 || value >= 100 ? Math.round(value) : value.toFixed(1)} ${units[power]}`
}

function formatMillions(count: number): string {
  return (count / 1e6).toFixed(count < 10e6 ? 1 : 0)
}
