import { randomBytes } from 'node:crypto'
import { once } from 'node:events'
import type { Address } from 'viem'
import { privateKeyToAccount } from 'viem/accounts'
import { gasLimitsOf } from '#chain/gasLimits'
import { createPayerCode } from '#chain/payerCode'
import { openServedNetworks } from '#chain/servedNetworks'
import { createLogger } from '#process/log'
import { repeat } from '#process/repeat'
import { createBudget } from './budget.ts'
import type { IndependentConfig } from './config.ts'
import { fetchPending } from './pendingQueue.ts'
import { createSettler } from './settler.ts'

/** The gateway publishes so many batches of its queue at once. */
const mostPages = 10

/**
 * Runs a keeper that needs nobody's leave: it settles what a gateway publishes as due, with a key and gas money of its
 * own, and without a database. What it forgets when it ends, chain and gateway know.
 *
 * @param stopping ends it after the steps that are under way.
 */
export async function runIndependentKeeper(config: IndependentConfig, stopping: AbortSignal): Promise<void> {
  const log = createLogger('keeper', config.logLevel)
  const now = () => new Date()
  const networks = await openServedNetworks(config.networks, {
    onUnreachable: ({ name }, err) => log.warn({ network: name, err }, 'a network is down'),
  })
  const budget = createBudget(now)
  const names = networks.map(({ network }) => network.name)
  log.info({ networks: names }, 'settling what the gateway publishes')

  const settlers = networks.flatMap((served) => {
    const payersWithCode = createPayerCode(served.client, now)
    return config.privateKeys.map((key, index) => {
      const account = privateKeyToAccount(key)
      const settler = createSettler({
        served,
        wallet: {
          address: account.address.toLowerCase() as Address,
          sign: (transaction) => account.signTransaction({ ...transaction, type: 'eip1559' }),
        },
        settings: { ...config.settings, ...gasLimitsOf(served.network, config.settings) },
        budget,
        payersWithCode,
        // Wallets of one keeper don't race each other.
        readPending: () => fetchPending(config.gatewayUrl, served, index % mostPages, now()),
        now,
        randomBytes32: () => `0x${randomBytes(32).toString('hex')}`,
        log: log.child({ network: served.network.name, wallet: account.address }),
      })
      return { network: served.network.name, wallet: account.address, settler }
    })
  })
  const loops = settlers.map(({ network, wallet, settler }) =>
    repeat({
      name: `wallet ${wallet}`,
      everyMs: config.pollMs,
      step: settler.step,
      onError: (err, failures) =>
        log.warn({ err, network, failures }, 'a step failed and will be taken again'),
    }),
  )
  if (!stopping.aborted) await once(stopping, 'abort')
  await Promise.all(loops.map((loop) => loop.stop()))
  for (const { network, wallet, settler } of settlers) {
    const { stillOut, ...done } = settler.report()
    log.info({ network, wallet, ...done, spentToday: `${budget.spentToday()}`, stillOut }, 'stopped')
  }
}
