import { checkSignaturesHere, startSignatureThreads } from '@tollkeeper/chain/payerSignatures'
import { openServedNetworks } from '@tollkeeper/chain/servedNetworks'
import { openDatabase } from '@tollkeeper/ledger/store/database'
import { logIgnoredParameters } from '@tollkeeper/ledger/store/databaseServer'
import { isPooled, prepareDatabase } from '@tollkeeper/ledger/store/pooler'
import { requireTabStore } from '@tollkeeper/ledger/tabs/storeMark'
import { openTabDatabase } from '@tollkeeper/ledger/tabs/tabDatabase'
import { findUnread } from '@tollkeeper/runtime/env'
import { createLogger } from '@tollkeeper/runtime/log'
import { serve } from '@tollkeeper/runtime/serve'
import { openTracer } from '@tollkeeper/runtime/trace'
import {
  collectYoungGenerationOnOneThread,
  growYoungGenerationAtOnce,
} from '@tollkeeper/runtime/youngGeneration'
import { createApp } from './app.ts'
import { startBackgroundWork } from './backgroundWork.ts'
import { readApiConfig } from './config.ts'
import { loadReceiptKeys } from './payments/receipts/keys.ts'
import { watchReceiptKeys } from './payments/receipts/watchKeys.ts'

/** Maximum time in ms for stopping after SIGTERM. Docker kills the process after ten seconds. */
const stopMs = 9_000

async function main(): Promise<void> {
  growYoungGenerationAtOnce()
  collectYoungGenerationOnOneThread()
  const config = readApiConfig(process.env)
  const log = createLogger('api', config.logLevel)
  for (const unread of findUnread(process.env)) log.warn(unread, 'no process reads this variable')
  logIgnoredParameters(process.env, log)
  const sql = openDatabase({
    url: config.databaseUrl,
    max: config.databasePool,
    applicationName: 'tollkeeper-api',
    isPooled: isPooled(config),
  })

  // Networks are checked before anything is written, because the database keeps a network's name and chain id. A description that the chain
  // contradicts must not be stored.
  const networks = await openServedNetworks(config.networks, {
    onUnreachable: ({ name }, err) => log.warn({ network: name, err }, 'a network is down'),
  })
  const [receiptKeys] = await Promise.all([
    loadReceiptKeys(config.receiptKeyFile, config.createReceiptKeys),
    prepareDatabase(sql, config),
  ])
  const tabDatabase = await openTabDatabase({
    url: config.tabDatabaseUrl,
    ledger: sql,
    max: config.databasePool,
    applicationName: 'tollkeeper-api',
  })
  await requireTabStore({ sql, tabs: tabDatabase })
  const keyWatch = watchReceiptKeys(config.receiptKeyFile, receiptKeys, log)
  const work = startBackgroundWork({ sql, tabDatabase, networks, settings: config.gateway, log })
  const tracer = await openTracer(config.tracing, 'tollkeeper-api', log)
  const app = createApp({
    sql,
    tracer,
    tabDatabase,
    networks,
    settings: config.gateway,
    receiptKeys,
    log,
    payerSignatures:
      config.signatureThreads === 0 ? checkSignaturesHere : startSignatureThreads(config.signatureThreads),
    ...work.shared,
  })
  const server = await serve(app, { ...config, portVariable: 'API_PORT' })
  log.info(
    { url: `http://${config.host}:${server.port}`, networks: networks.map(({ network }) => network.name) },
    'api is listening',
  )

  async function stop(signal: string): Promise<void> {
    log.info({ signal }, 'api is stopping')
    setTimeout(() => {
      log.warn('background work did not stop in time; the next start resumes it')
      process.exit(0)
    }, stopMs).unref()
    await keyWatch.stop()
    await server.close()
    await Promise.all([work.close(), tracer?.stop()])
    await Promise.all([tabDatabase.end({ timeout: 2 }), sql.end({ timeout: 2 })])
    process.exit(0)
  }
  process.once('SIGTERM', stop)
  process.once('SIGINT', stop)
}

main().catch((error: unknown) => {
  // Written to the terminal, not the log: it is for the person who starts the process, and the log may not be set up yet.
  process.stderr.write(`api: ${error instanceof Error ? error.message : String(error)}\n`)
  process.exit(1)
})
