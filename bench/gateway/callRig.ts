/** The rig of `bench -- call` and `bench -- settled`: the whole stack on a chain of two-second blocks, sellers, buyers, and x402's own programs. */
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { openDatabase } from '@tollkeeper/ledger/store/database'
import { reservePort } from '@tollkeeper/runtime/port'
import { bytesToHex } from 'viem'
import { devAccount } from '../../apps/devstack/chain/accounts.ts'
import { registerProvider } from '../../apps/devstack/stack/registerProvider.ts'
import { Service } from '../../apps/devstack/stack/service.ts'
import { startStack } from '../../apps/devstack/stack/stack.ts'
import { createBuyers } from '../data/signPayments.ts'
import { findPostmaster } from '../support/benchEnv.ts'
import { cpuTime, cpuTimeOfTree } from '../support/cpuTime.ts'
import type { BuyerAnswer, BuyerRun, BuyerSettings } from './callBuyer.ts'
import type { SellerSettings } from './callSeller.ts'

const blockTimeMs = 2_000
/** The price in USDC from which a payment settles before it is served, alone and immediately. */
const settledFromUsdc = 10

const settling = {
  SETTLE_BEFORE_SERVE_USDC: String(settledFromUsdc),
  SETTLE_BEFORE_SERVE_TIMEOUT_MS: '60000',
}

export type CallRig = Awaited<ReturnType<typeof startCallRig>>

export async function startCallRig({
  buyers: count,
  prices,
  settlesFirst = true,
}: {
  buyers: number
  /** Prices in decimal USDC by path of our seller. */
  prices: Record<string, string>
  /** Whether our seller waits for the settlement before it serves, if the price is at least {@link settledFromUsdc}. Default true. */
  settlesFirst?: boolean
}) {
  await using starting = new AsyncDisposableStack()
  /**
   * Collects everything to end. If the start fails, `starting` ends it when this function returns. Otherwise the caller ends it by disposing the rig.
   */
  let resources: AsyncDisposableStack = starting
  const stack = await startStack({
    chain: { network: 'localhost', blockTimeMs },
    env: {
      api: {
        RATE_LIMITS: 'off',
        ...(settlesFirst && settling),
        // With these values no tab reaches a credit limit, but the gateway still reserves credit, so the measurement includes that work.
        TAB_CREDIT_USDC: '10000',
        TAB_BUDGET_USDC: '10000000',
      },
      keeper: { GAS_ALLOWANCE_USD: '1000000' },
    },
  })
  starting.defer(() => stack.close())
  const { chain } = stack
  const usdc = chain.deployments.localhost?.usdc
  if (usdc === undefined) throw new Error('the local chain has no deployment')
  const buyers = createBuyers(count)
  await chain.mintUsdc(
    buyers.map(({ address }) => address),
    1_000_000_000_000n,
  )
  const database = openDatabase({ url: stack.databaseUrl, max: 1, applicationName: 'bench', limited: false })
  starting.defer(() => database.end({ timeout: 1 }))
  const postmaster = await findPostmaster(database)

  async function start(
    file: string,
    name: string,
    env: Record<string, string>,
    given: { args?: string[]; port?: number } = {},
  ) {
    const { args = [], port = await reservePort() } = given
    const service = new Service({
      name,
      program: ['--conditions=@tollkeeper/source', join(import.meta.dirname, file), ...args],
      env: { ...env, PORT: String(port) },
      url: `http://127.0.0.1:${port}`,
      readyPath: '/healthz',
      logFile: join(stack.logFolder, `${name}.log`),
    })
    resources.defer(() => service.stop())
    await service.start()
    return { url: service.url, port, cpu: () => cpuTime(service.pid ?? 0) }
  }
  const startSeller = (name: string, settings: SellerSettings, port?: number) =>
    start('callSeller.ts', name, { SELLER: JSON.stringify(settings) }, port === undefined ? {} : { port })

  const payTo = devAccount(3).address
  const sellerPort = await reservePort()
  const provider = await registerProvider({
    gatewayUrl: stack.api.url,
    name: 'Bench',
    network: 'localhost',
    address: payTo,
    endpoints: Object.entries(prices).map(([path, usdcPerUnit]) => ({
      url: `http://127.0.0.1:${sellerPort}${path}`,
      usdcPerUnit,
    })),
  })
  const { providerId, apiKey } = provider
  const own = { kind: 'ours', gatewayUrl: stack.api.url, providerId, apiKey, prices } as const
  const ours = await startSeller('seller', own, sellerPort)
  // The reference's wallet uses a nonce manager, unlike in the published example. Without a nonce manager, concurrent calls fail.
  const reference = await start(
    'referenceServer.ts',
    'reference',
    {},
    { args: [chain.url, 'manages-nonces'] },
  )
  const exact = (amount: string) => ({ kind: 'x402', payTo, usdc, amount }) as const
  const settings: BuyerSettings = {
    gatewayUrl: stack.api.url,
    usdc,
    keys: buyers.map(({ key }) => bytesToHex(key)),
  }
  const buyer = await start('callBuyer.ts', 'buyers', { BUYERS: JSON.stringify(settings) })
  const cpuOf = async (pid: number | undefined) => (pid === undefined ? 0 : cpuTime(pid))
  resources = starting.move()

  return {
    stack,
    chain,
    usdc,
    buyers: buyers.map(({ address }) => address),
    database,
    providerId,
    ours,
    /** Starts a seller with x402's middleware, which uses the reference facilitator or ours. */
    startExactSeller: (facilitator: 'reference' | 'ours', amount: string) =>
      facilitator === 'reference'
        ? startSeller(`exact-${amount}`, { ...exact(amount), facilitatorUrl: reference.url })
        : startSeller(`ours-exact-${amount}`, { ...exact(amount), facilitatorUrl: stack.keeper.url, apiKey }),
    async run(asked: BuyerRun): Promise<BuyerAnswer> {
      const answer = await fetch(`${buyer.url}/run`, { method: 'POST', body: JSON.stringify(asked) })
      if (!answer.ok) throw new Error(`the buyers answered ${answer.status}: ${await answer.text()}`)
      return (await answer.json()) as BuyerAnswer
    },
    /** Returns the CPU time used so far by each part, in µs. `gateway` doesn't include the database. */
    cpu: async (seller: { cpu: () => Promise<number> }) => ({
      buyer: await buyer.cpu(),
      seller: await seller.cpu(),
      gateway: await cpuOf(stack.api.pid),
      postgres: await cpuTimeOfTree(postmaster),
      keeper: await cpuOf(stack.keeper.pid),
      reference: await reference.cpu(),
    }),
    logOf: (name: string) => readFileSync(join(stack.logFolder, `${name}.log`), 'utf8'),
    [Symbol.asyncDispose]: () => resources.disposeAsync(),
  }
}
