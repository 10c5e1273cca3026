import { randomBytes } from 'node:crypto'
import { setTimeout as delay } from 'node:timers/promises'
import type { Address } from 'viem'
import { privateKeyToAccount } from 'viem/accounts'
import { gasLimitsOf } from '#chain/gasLimits'
import { createPayerCode } from '#chain/payerCode'
import { openServedNetworks } from '#chain/servedNetworks'
import { createLogger } from '#process/log'
import { createBudget } from './budget.ts'
import type { IndependentConfig } from './config.ts'
import { fetchPending } from './pendingQueue.ts'
import { createSettler } from './settler.ts'

const mostPauseMs = 30_000
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

  async function repeat(name: string, step: () => Promise<'busy' | 'idle'>): Promise<void> {
    for (let failures = 0; !stopping.aborted; ) {
      let result: 'busy' | 'idle' = 'idle'
      try {
        result = await step()
        failures = 0
      } catch (error) {
        failures += 1
        log.warn({ err: error, network: name, failures }, 'a step failed and will be taken again')
      }
      const pauseMs =
        result === 'busy' ? 250 : Math.min(config.pollMs * 2 ** Math.min(failures, 6), mostPauseMs)
      await delay(pauseMs, undefined, { signal: stopping }).catch(() => {})
    }
  }

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
  await Promise.all(settlers.map(({ network, settler }) => repeat(network, settler.step)))
  for (const { network, wallet, settler } of settlers) {
    const { stillOut, ...done } = settler.report()
    log.info({ network, wallet, ...done, spentToday: `${budget.spentToday()}`, stillOut }, 'stopped')
  }
}
