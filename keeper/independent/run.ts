import { randomBytes } from 'node:crypto'
import { once } from 'node:events'
import { probeHead } from '@tollkeeper/chain/head'
import { createPayerCode } from '@tollkeeper/chain/payerCode'
import { openServedNetworks } from '@tollkeeper/chain/servedNetworks'
import { probeGas } from '@tollkeeper/chain/walletState'
import { readReadiness } from '@tollkeeper/runtime/health'
import { createLogger } from '@tollkeeper/runtime/log'
import { createRateLimiter } from '@tollkeeper/runtime/rateLimiter'
import { refuseOtherMethods } from '@tollkeeper/runtime/refuseOtherMethods'
import { type RunningServer, serve } from '@tollkeeper/runtime/serve'
import { formatUsdc } from '@tollkeeper/sdk/protocol/amount'
import type { Address } from 'viem'
import { createOperationsApp, type OperationsOptions } from '../http/operations.ts'
import { openAccounts } from '../settings/config.ts'
import { createMetrics } from '../settings/metrics.ts'
import { startLoop } from '../settings/startLoop.ts'
import { createWallet, signerProbes } from '../settler/wallet.ts'
import { createBudget } from './budget.ts'
import { type IndependentSettings, strangersLimits } from './config.ts'
import { fetchPending } from './pendingQueue.ts'
import { createSettler, type Settler } from './settler.ts'

/** Number of pages of the gateway's queue over which this keeper's wallets are spread. */
const mostPages = 10

/**
 * Runs a keeper that anyone can run without permission: it settles the payments that a gateway publishes as due, with its own key and
 * gas money, and without a database. It can lose its memory, because the chain and the gateway have all that matters.
 *
 * @param stopping stops it after the current steps
 */
export async function runIndependentKeeper(
  config: IndependentSettings,
  stopping: AbortSignal,
): Promise<void> {
  const log = createLogger('keeper', config.logLevel)
  const now = () => new Date()
  const networks = await openServedNetworks(config.networks, {
    onUnreachable: ({ name }, err) => log.warn({ network: name, err }, 'a network is down'),
  })
  const budget = createBudget(now)
  const metrics = createMetrics()
  const accounts = openAccounts(config.wallets)
  const addresses = accounts.map(({ address }) => address)
  const wallets = networks.map((served) => ({
    served,
    own: accounts.map((account) => createWallet(account, served.network)),
  }))
  const probes = wallets.flatMap(({ served, own }) => [
    probeHead(served),
    probeGas(served, addresses),
    ...signerProbes(own),
  ])
  const names = networks.map(({ network }) => network.name)
  log.info({ networks: names }, "settling the gateway's due payments")

  const settlers = wallets.flatMap(({ served, own }) => {
    const payersWithCode = createPayerCode(served.client, now)
    const inFlight = new Set<string>()
    return own.map((wallet, index) => {
      const settler = createSettler({
        served,
        wallet,
        settings: { ...config.settings, ...strangersLimits(served.network, config.settings) },
        budget,
        payersWithCode,
        // All wallets of this keeper share this set, so that they don't settle the same payments.
        inFlight,
        readPending: () => fetchPending(config.gatewayUrl, served, index % mostPages, now()),
        now,
        randomBytes32: () => `0x${randomBytes(32).toString('hex')}`,
        log: log.child({ network: served.network.name, wallet: wallet.address }),
        metrics,
      })
      return { network: served.network.name, wallet: wallet.address, settler }
    })
  })
  const operations = { readiness: () => readReadiness(probes), metrics, log }
  const server = await serveOperations(config, operations, () => settlers.map(reportOf))
  const loops = settlers.map(({ network, wallet, settler }) =>
    startLoop({ metrics, log, probes }, `wallet ${wallet}`, network, config.pollMs, settler.step),
  )
  if (!stopping.aborted) await once(stopping, 'abort')
  await Promise.all([server?.close(), ...loops.map((loop) => loop.stop())])
  for (const settler of settlers)
    log.info({ ...reportOf(settler), spentToday: formatUsdc(budget.spentToday()) }, 'stopped')
}

/** Returns what a wallet has settled, spent on gas and earned so far. Amounts are in USDC. */
function reportOf({ network, wallet, settler }: { network: string; wallet: Address; settler: Settler }) {
  const { spent, earned, ...done } = settler.report()
  return { network, wallet, ...done, spent: formatUsdc(spent), earned: formatUsdc(earned) }
}

/** Serves health, metrics and each wallet's report, if a port is set for them. */
async function serveOperations(
  { http, metricsToken }: IndependentSettings,
  options: Omit<OperationsOptions, 'metricsToken' | 'rateLimiter' | 'trustedProxies'>,
  report: () => ReturnType<typeof reportOf>[],
): Promise<RunningServer | undefined> {
  if (http === null) return undefined
  const rateLimiter = createRateLimiter({ sql: null, log: options.log, now: Date.now })
  const app = createOperationsApp({ ...options, metricsToken, rateLimiter, trustedProxies: 0 })
  app.get('/', (c) => c.json({ wallets: report() }))
  refuseOtherMethods(app)
  const server = await serve(app, { ...http, portVariable: 'KEEPER_PORT' })
  options.log.info({ port: server.port }, `health and metrics on http://${http.host}:${server.port}`)
  return server
}
