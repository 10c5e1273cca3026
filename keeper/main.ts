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
import { readIndependentConfig } from './independent/config.ts'
import { runIndependentKeeper } from './independent/run.ts'
import { createKeeper } from './keeper.ts'
import { openAccounts, readKeeperConfig } from './settings/config.ts'

/** How long SIGTERM may take; the next start resumes what isn't finished by then. */
const drainMs = 9_000

async function main(): Promise<void> {
  if (isSet(process.env, 'KEEPER_GATEWAY_URL')) await mainIndependent()
  else await mainOfOperator()
}

/** A stranger's keeper: no database, no HTTP. */
async function mainIndependent(): Promise<void> {
  const config = readIndependentConfig(process.env)
  warnAboutUnread(createLogger('keeper', config.logLevel))
  const stopping = new AbortController()
  for (const signal of ['SIGTERM', 'SIGINT'] as const) process.once(signal, () => stopping.abort())
  stopping.signal.addEventListener('abort', () => setTimeout(() => process.exit(0), drainMs).unref())
  await runIndependentKeeper(config, stopping.signal)
}

async function mainOfOperator(): Promise<void> {
  const config = readKeeperConfig(process.env)
  const log = createLogger('keeper', config.logLevel)
  warnAboutUnread(log)
  logIgnoredParameters(process.env, log)
  // Whoever takes over a frozen keeper's wallet needs its locks, too.
  const applicationName = 'tollkeeper-keeper'
  const idleInTransactionMs = Math.min(5_000, config.settings.leaseMs)
  const database = openDatabase({
    url: config.databaseUrl,
    applicationName,
    idleInTransactionMs,
    isPooled: isPooled(config),
  })
  await prepareDatabase(database, config, idleInTransactionMs)
  const networks = await openServedNetworks(config.networks, {
    onUnreachable: ({ name }, err) => log.warn({ network: name, err }, 'a network is down'),
  })
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
    log.warn('not everything was finished in time: the next start goes on from what is stored')
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
  // Open connections would keep it waiting.
  process.exit(1)
})
