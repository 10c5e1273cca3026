import { readIndexedHead } from '@tollkeeper/ledger/facts/indexedHead'
import { readToldBlock } from '@tollkeeper/ledger/facts/record'
import { indexLagLimit } from '@tollkeeper/ledger/facts/recordState'
import { type Database, openDatabase, requirePostgres, schema } from '@tollkeeper/ledger/store/database'
import { databaseServerOf } from '@tollkeeper/ledger/store/databaseServer'
import { describePending, readSchemaState } from '@tollkeeper/ledger/store/migrate'
import { readDatabaseUrls } from '@tollkeeper/ledger/store/pooler'
import { findLostTabs, TabStoreBehind } from '@tollkeeper/ledger/tabs/storeMark'
import { onOnePostgres } from '@tollkeeper/ledger/tabs/tabDatabase'
import { ConfigError, type Environment, readVariable } from '@tollkeeper/runtime/env'
import { ownCommand } from '@tollkeeper/runtime/ownCommand'
import { type Check, fail, ok, reasonOf, skipped, warn } from './check.ts'
import { breakEvenCheck, examineBreakEven } from './examineBreakEven.ts'
import { type ClockReading, readDatabaseTime } from './examineClock.ts'
import { examineHooks, hooksCheck } from './examineHooks.ts'
import { examinePostgres, postgresChecks, withinLimit } from './examinePostgres.ts'
import { examinePrices, pricesCheck } from './examinePrices.ts'
import { examineSales, salesCheck } from './examineSales.ts'
import { examineTabBudget, tabBudgetCheck } from './examineTabBudget.ts'
import type { ExaminedNetwork } from './networks.ts'

/**
 * Checks the database, its migrations, the progress of each network's index, and limits of Postgres that are reached only after weeks.
 *
 * @param clocks receives the database's clock.
 */
export async function* examineDatabase(
  env: Environment,
  networks: readonly ExaminedNetwork[],
  clocks: ClockReading[],
): AsyncGenerator<Check> {
  const left = [
    'migrations',
    salesCheck,
    hooksCheck,
    tabStoreCheck,
    pricesCheck,
    breakEvenCheck,
    ...networks.map(indexCheck),
    tabBudgetCheck,
    ...postgresChecks,
  ]
  const skipLeft = (needs: string) => left.map((name) => skipped(name, needs))
  let url: string
  try {
    url = readDatabaseUrls(env).directDatabaseUrl
  } catch (error) {
    if (!(error instanceof ConfigError)) throw error
    const advice = 'a keeper with --gateway needs no database'
    yield fail('database', error.message, advice)
    yield* skipLeft('a database')
    return
  }
  const database = openDatabase({ url, max: 1, applicationName: 'tollkeeper-doctor', limited: false })
  try {
    await requirePostgres(database)
    clocks.push(await readDatabaseTime(database))
    const [row] = await database<{ version: string; commit: string }[]>`
      select current_setting('server_version') as version, current_setting('synchronous_commit') as commit`
    const weaker = databaseServerOf(url).ignored.filter(({ isWeaker }) => isWeaker)
    const lacks = weaker.map(({ name, reason }) => `; ${name} has no effect: ${reason}`).join('')
    const found = `Postgres ${row?.version}, synchronous_commit ${row?.commit}${lacks}`
    const advice = 'a crash of the server can lose accepted payments: set synchronous_commit to on'
    yield row?.commit === 'off' ? warn('database', found, advice) : ok('database', found)
    const migrations = await examineMigrations(database)
    yield migrations
    left.shift()
    if (migrations.status !== 'ok') {
      yield* skipLeft("this version's schema in the database")
      return
    }
    yield await examineSales(database)
    left.shift()
    yield await examineHooks(database, readVariable(env, 'WEBHOOK_ALLOW_PRIVATE'))
    left.shift()
    yield await examineTabStore(env, database)
    left.shift()
    yield await examinePrices(database)
    left.shift()
    yield await examineBreakEven(env, database, networks)
    left.shift()
    for (const network of networks) {
      yield await examineIndex(database, network)
      left.shift()
    }
    yield await withinLimit(database, tabBudgetCheck, (sql) => examineTabBudget(sql, env, networks))
    left.shift()
    for await (const check of examinePostgres(database, networks)) {
      yield check
      left.shift()
    }
  } catch (error) {
    yield fail('database', reasonOf(error), adviseOn(error))
    yield* skipLeft('a database that responds')
  } finally {
    await database.end({ timeout: 1 })
  }
}

function adviseOn(error: unknown): string {
  const code = error instanceof Error && 'code' in error ? String(error.code) : ''
  // Node's error codes for rejected certificates.
  return /CERT|SIGNATURE|ALTNAME/.test(code)
    ? "add sslrootcert=/path/ca.pem to DATABASE_URL (its host publishes the file), or use the host's name in the certificate"
    : 'check that DATABASE_URL is right and Postgres runs'
}

const tabStoreCheck = 'tab store'

async function examineTabStore(env: Environment, database: Database): Promise<Check> {
  const url = readVariable(env, 'TABS_DATABASE_URL')
  const own =
    url === null
      ? null
      : openDatabase({ url, max: 1, applicationName: 'tollkeeper-doctor', limited: false, isOlder: true })
  try {
    const lost = await findLostTabs({ sql: database, tabs: onOnePostgres(own ?? database) })
    if (lost.length === 0) return ok(tabStoreCheck, 'as new as the ledger')
    const { found, advice } = new TabStoreBehind(lost)
    return fail(tabStoreCheck, found, advice)
  } catch (error) {
    return fail(tabStoreCheck, reasonOf(error), 'check that TABS_DATABASE_URL is right and its server runs')
  } finally {
    await own?.end({ timeout: 1 })
  }
}

const indexCheck = ({ network }: Pick<ExaminedNetwork, 'network'>) => `${network.name}: index`

async function examineMigrations(database: Database): Promise<Check> {
  const name = 'migrations'
  const state = await readSchemaState(database)
  const { applied, refusal } = state
  if (refusal) return fail(name, refusal.found, refusal.advice)
  const pending = describePending(state)
  if (pending !== null) {
    const found = applied.length === 0 ? `no schema ${schema} yet` : `the database ${pending}`
    const advice = 'start the api or the keeper: each of them migrates the schema'
    return fail(name, found, advice)
  }
  return ok(name, `${applied.length} applied`)
}

async function examineIndex(
  database: Database,
  { network, head: chainHead, hasContracts }: ExaminedNetwork,
): Promise<Check> {
  const name = indexCheck({ network })
  if (hasContracts === false)
    return skipped(name, `the contracts on ${network.name}, whose events it contains`)
  const indexed = await readIndexedHead(database, network.chainId)
  if (indexed === null) {
    const found = `no index of ${network.name} in schema indexer`
    return fail(name, found, `${ownCommand} indexer`)
  }
  const told = await readToldBlock(database, network.chainId)
  if (indexed.blockNumber < told) {
    const found = `at block ${indexed.blockNumber}, but providers were notified about block ${told}`
    const advice =
      'the index is being rebuilt: nothing settles until it has caught up. Wait, and watch the indexer'
    return fail(name, found, advice)
  }
  if (chainHead === undefined) {
    return { name, status: 'warn', found: `at block ${indexed.blockNumber}; the chain's head is not known` }
  }
  const lag = chainHead > indexed.blockNumber ? chainHead - indexed.blockNumber : 0n
  const found = `at block ${indexed.blockNumber}, ${lag} blocks behind`
  const limit = indexLagLimit(network)
  if (lag <= limit) return ok(name, found)
  const advice = `more than ${limit} blocks behind: check that the indexer runs, and that its RPC is fast enough`
  return fail(name, found, advice)
}
