import { randomBytes } from 'node:crypto'
import { once } from 'node:events'
import { hostname } from 'node:os'
import { openServedNetworks } from '@tollkeeper/chain/servedNetworks'
import { openDatabase } from '@tollkeeper/ledger/store/database'
import { logIgnoredParameters } from '@tollkeeper/ledger/store/databaseServer'
import { isPooled, prepareDatabase } from '@tollkeeper/ledger/store/pooler'
import { requireTabStore } from '@tollkeeper/ledger/tabs/storeMark'
import { openTabDatabase } from '@tollkeeper/ledger/tabs/tabDatabase'
import { findUnread, isSet } from '@tollkeeper/runtime/env'
import { createLogger, type Logger } from '@tollkeeper/runtime/log'
import { serve } from '@tollkeeper/runtime/serve'
import { openTracer } from '@tollkeeper/runtime/trace'
import { readIndependentSettings } from './independent/config.ts'
import { runIndependentKeeper } from './independent/run.ts'
import { createKeeper } from './keeper.ts'
import { openAccounts, readKeeperEnvironment } from './settings/config.ts'

/** Maximum duration of a shutdown in ms. The next start resumes work that isn't finished by then. */
const drainMs = 9_000

async function main(): Promise<void> {
  if (isSet(process.env, 'KEEPER_GATEWAY_URL')) await mainIndependent()
  else await mainOfOperator()
}

/**
 * Runs an independent keeper, which anyone may operate: it has no database, and serves HTTP only for health and metrics, if KEEPER_PORT is
 * set.
 */
async function mainIndependent(): Promise<void> {
  const config = readIndependentSettings(process.env)
  warnAboutUnread(createLogger('keeper', config.logLevel))
  const stopping = new AbortController()
  for (const signal of ['SIGTERM', 'SIGINT'] as const) process.once(signal, () => stopping.abort())
  stopping.signal.addEventListener('abort', () => setTimeout(() => process.exit(0), drainMs).unref())
  await runIndependentKeeper(config, stopping.signal)
}

async function mainOfOperator(): Promise<void> {
  const config = readKeeperEnvironment(process.env)
  const log = createLogger('keeper', config.logLevel)
  warnAboutUnread(log)
  logIgnoredParameters(process.env, log)
  // If this host freezes in a transaction, another keeper takes over its wallet and needs the rows that the transaction has locked. So the
  // database must end the transaction before the lease ends.
  const applicationName = 'tollkeeper-keeper'
  const idleInTransactionMs = Math.min(5_000, config.settings.leaseMs)
  const database = openDatabase({
    url: config.databaseUrl,
    applicationName,
    idleInTransactionMs,
    isPooled: isPooled(config),
  })
  // The networks are opened before the database, because preparing the database stores each network's name and chain id. Opening a network
  // checks its description against the chain, and a wrong description must not be stored.
  const networks = await openServedNetworks(config.networks, {
    onUnreachable: ({ name }, err) => log.warn({ network: name, err }, 'a network is down'),
  })
  await prepareDatabase(database, config, idleInTransactionMs)
  const { databaseUrl: url, ...tabs } = config.tabs
  const tabDatabase = await openTabDatabase({ url, ledger: database, applicationName })
  await requireTabStore({ sql: database, tabs: tabDatabase })
  const tracer = await openTracer(config.tracing, 'tollkeeper-keeper', log)
  const keeper = createKeeper({
    ...config,
    database,
    networks,
    log,
    tracer,
    tabs: { ...tabs, database: tabDatabase },
    accounts: openAccounts(config.wallets),
    now: () => new Date(),
    randomBytes32: () => `0x${randomBytes(32).toString('hex')}`,
    holder: `${hostname()}:${process.pid}:${randomBytes(4).toString('hex')}`,
  })

  const server = await serve(keeper.app, { ...config, portVariable: 'KEEPER_PORT' })
  const { port } = server
  keeper.start()
  log.info(
    { port, networks: networks.map((one) => one.network.name) },
    `listening on http://${config.host}:${port}`,
  )

  await Promise.race([once(process, 'SIGTERM'), once(process, 'SIGINT')])
  log.info('stopping')
  setTimeout(() => {
    log.warn('shutdown timed out before all steps finished: the next start resumes from the database')
    process.exit(0)
  }, drainMs).unref()
  await Promise.all([server.close(), keeper.stop()])
  await tracer?.stop()
  await Promise.all([tabDatabase.end({ timeout: 1 }), database.end({ timeout: 1 })])
}

function warnAboutUnread(log: Logger): void {
  for (const unread of findUnread(process.env)) log.warn(unread, 'no process reads this variable')
}

main().catch((error: unknown) => {
  process.stderr.write(`keeper: ${error instanceof Error ? error.message : String(error)}\n`)
  // Exits explicitly, because open connections would keep the process running.
  process.exit(1)
})
