import { once } from 'node:events'
import { createServer, type Server } from 'node:http'
import type { AddressInfo } from 'node:net'
import { join } from 'node:path'
import type { HoldReason } from '@tollkeeper/ledger/queue/stages'
import { openDatabase } from '@tollkeeper/ledger/store/database'
import { loopback, reservePort } from '@tollkeeper/runtime/port'
import { type Client, createClient } from '@tollkeeper/sdk/client/createClient'
import type { Payer } from '@tollkeeper/sdk/client/payer'
import { formatUsdc, parseUsdc } from '@tollkeeper/sdk/protocol/amount'
import { type Address, createTestClient, type Hex, http, publicActions } from 'viem'
import { generatePrivateKey, type PrivateKeyAccount, privateKeyToAccount } from 'viem/accounts'
import { devAccount, devPrivateKey } from '../../../apps/devstack/chain/accounts.ts'
import { Service } from '../../../apps/devstack/stack/service.ts'
import { type CutProxy, startCutProxy } from '../../support/cutProxy.ts'
import { createTestDatabase } from '../../support/database.ts'
import { hasPgbouncer, startPgbouncer } from '../../support/pgbouncer.ts'
import { root } from '../../support/processes.ts'
import { startFront } from '../../support/roundRobin.ts'
import { openShop, type Shop } from '../../support/shop.ts'
import { startTestStack, type TestStack } from '../../support/stack.ts'
import { tokenOf } from '../../support/usdc.ts'

/** One of our processes, with its proxy to Postgres. */
export type Host = { name: string; service: Service; postgres: CutProxy; wallet?: Address }

export type Buyer = { account: PrivateKeyAccount; client: Client }

type BuyerOptions = Pick<Parameters<typeof createClient>[0], 'split' | 'stores' | 'tabs'>

export type Market = Awaited<ReturnType<typeof openMarket>>

export type Scene = Awaited<ReturnType<typeof openScene>>

export const usdcOfBuyer = '1000'

/** Keeper settings: settle soon, and take over a dead keeper's lease soon. */
export const keeperEnv = {
  TRIGGER_TIME_SECONDS: '2',
  KEEPER_LEASE_MS: '3000',
  REPLACE_AFTER_MS: '3000',
}

/** Price of a gas token in the stack, in USDC base units. */
export const usdPerToken = 3_000_000_000n
/** The operator's daily gas allowance and budget, in USD. */
export const gasBudget = { common: '0.003', fees: '0.005' }
/** Maximum that new payers together may borrow on tabs in a day, in USDC. */
export const tabBudget = '100'
/**
 * Gas settings. The fee on half a cent covers the gas of two signatures by keys, at most 381 base units, but not that
 * of a contract wallet, 1,630. The tip is the whole gas price, because nearly empty blocks bring the base fee down to
 * zero.
 */
const gasEnv = {
  PRIORITY_FEE_WEI: '700000',
  GAS_ALLOWANCE_USD: gasBudget.common,
}
const keeperGasEnv = { ...gasEnv, MAX_GAS_PER_FEE: '10', KEEPER_DAILY_BUDGET_USD: gasBudget.fees }

/** Folder of the logs, which are kept after the run because they explain failures. */
const logFolder = join(root, 'reports/hostile')

/**
 * Options of a chain that mines at fixed intervals, as real chains do. If each transaction got its own block, strangers
 * could create blocks faster than the index reads them.
 */
const clockwork = { blockTimeMs: 500, atOnce: false }

/**
 * Opens the whole stack that compose.yaml runs, with two gateways behind a round-robin front, two keepers with a wallet
 * each, and a reader of the index. Each gateway and keeper reaches Postgres through a separate proxy, and through
 * PgBouncer if that is installed. Of the network's three RPC URLs, the first never answers, and the second is a proxy
 * in front of the chain.
 *
 * @param buyers The maximum number of buyers.
 */
export async function openScene(buyers: number) {
  const databaseUrl = await createTestDatabase()
  const keeperIdleInTransactionMs = Number(keeperEnv.KEEPER_LEASE_MS)
  const pooler = hasPgbouncer ? await startPgbouncer(databaseUrl, { keeperIdleInTransactionMs }) : undefined
  const front = await startFront()
  const openWay = async (name: 'api' | 'keeper') => {
    const url = new URL(pooler?.urlOf(name) ?? databaseUrl)
    const postgres = await startCutProxy(url.hostname, Number(url.port))
    url.host = `${loopback}:${postgres.port}`
    return { postgres, env: { DATABASE_URL: url.href, ...(pooler && { DATABASE_DIRECT_URL: databaseUrl }) } }
  }
  const [ofApi, ofOtherApi] = [await openWay('api'), await openWay('api')]
  const [ofKeeper, ofOtherKeeper] = [await openWay('keeper'), await openWay('keeper')]
  let firstNode: CutProxy | undefined
  const deaths: string[] = []
  const killed = new Set<string>()
  const stack = await startTestStack({
    databaseUrl,
    logFolder,
    chain: clockwork,
    onDeath: (name, reason) => killed.has(name) || deaths.push(reason),
    rpcUrlOf: async ({ url, port }) => {
      firstNode = await startCutProxy(loopback, port)
      const dead = await reservePort()
      return [`http://${loopback}:${dead}`, `http://${loopback}:${firstNode.port}`, url].join(',')
    },
    env: {
      api: {
        ...gasEnv,
        ETH_USD: formatUsdc(usdPerToken),
        TAB_BUDGET_USDC: tabBudget,
        ...ofApi.env,
        PUBLIC_URL: front.url,
        WEBHOOK_ALLOW_PRIVATE: 'true',
      },
      keeper: { ...keeperEnv, ...keeperGasEnv, ...ofKeeper.env, WEBHOOK_ALLOW_PRIVATE: 'true' },
    },
  })
  if (!firstNode) throw new Error('no node')
  const otherApi = await stack.createService('api', ofOtherApi.env)
  const otherKey = { KEEPER_PRIVATE_KEYS: devPrivateKey(15) }
  const otherKeeper = await stack.createService('keeper', { ...ofOtherKeeper.env, ...otherKey })
  const port = await reservePort()
  const reader = new Service({
    name: 'reader',
    program: [join(root, 'indexer/main.ts'), '--serve'],
    env: { ...stack.env, INDEXER_PORT: String(port) },
    url: `http://${loopback}:${port}`,
    readyPath: '/ready',
    logFile: join(stack.logFolder, 'reader.log'),
  })
  await Promise.all([otherApi, otherKeeper, reader].map((service) => service.start()))
  front.targets.push(stack.api.url, otherApi.url)
  const keepers: Host[] = [
    { ...ofKeeper, name: 'keeper 1', service: stack.keeper, wallet: devAccount(1).address },
    { ...ofOtherKeeper, name: 'keeper 2', service: otherKeeper, wallet: devAccount(15).address },
  ]
  const hosts: Host[] = [
    ...keepers,
    { ...ofApi, name: 'api 1', service: stack.api },
    { ...ofOtherApi, name: 'api 2', service: otherApi },
  ]
  const processes = [...hosts, { name: 'reader', service: reader }]
  const proxies = [...hosts.map(({ postgres }) => postgres), firstNode]
  const market = await openMarket(stack, keepers, buyers, front.url)
  return {
    ...market,
    /** The keepers and the gateways. */
    hosts,
    /** The hosts and the index reader. */
    processes,
    front,
    pooler,
    reader,
    /** The first of the network's nodes that works. */
    firstNode,
    /** Parts that a test has killed and not restarted yet. */
    killed,
    /** Returns which of our processes have ended. */
    readDead: () => [
      ...deaths,
      ...processes.flatMap(({ name, service }) => (service.isRunning ? [] : [name, ...service.lastLines])),
    ],
    async close() {
      for (const { service } of hosts) signal(service, 'SIGCONT')
      await reader.kill()
      await market.close()
      await Promise.all([...proxies, front].map((one) => one.close()))
      await pooler?.close()
    },
  }
}

/**
 * Opens the market in which buyers and providers trade, on a running stack.
 *
 * @param buyers The maximum number of buyers. They get their USDC now, while gas is cheap.
 */
async function openMarket(stack: TestStack, keepers: readonly Host[], buyers: number, gatewayUrl: string) {
  const database = openDatabase({ url: stack.databaseUrl, max: 4, applicationName: 'test' })
  const chain = createTestClient({ mode: 'hardhat', transport: http(stack.chain.url) }).extend(publicActions)
  const accounts = Array.from({ length: buyers }, () => privateKeyToAccount(generatePrivateKey()))
  const addresses = accounts.map(({ address }) => address)
  await stack.chain.mintUsdc(addresses, parseUsdc(usdcOfBuyer))
  const shops: Shop[] = []
  const clientOf = (account: Payer, options: BuyerOptions): Client =>
    createClient({
      // Buyers don't use tabs unless an option requests them.
      tabs: false,
      ...options,
      gatewayUrl,
      network: stack.chain.network,
      account,
      usdcAddress: tokenOf(stack.chain),
      limits: { perPayment: '20' },
      timeout: 30_000,
    })
  return {
    stack,
    gatewayUrl,
    database,
    chain,
    token: tokenOf(stack.chain),
    keepers,
    /** The strangers' actions, for failure messages. */
    events: [] as string[],
    /** Hostile payers, each with the attack that it makes. */
    liars: new Map<Address, string>(),
    /** Wallets of suspended providers. */
    suspended: new Set<Address>(),
    /** Number of times that sellers got `success` for a payment, by its nonce. */
    successes: new Map<Hex, number>(),
    /** Answers to readers that were neither successful nor a rate limit. */
    unread: [] as string[],
    /** Successful attacks. */
    won: [] as string[],
    /** Names of the plays that got as far as an attempt. */
    acted: new Set<string>(),
    /** Payments of tabs that their buyers settled under other terms. */
    ownTerms: new Set<string>(),
    /** Reasons why payments waited for gas, by payment. */
    held: new Map<string, HoldReason>(),
    /** When each payment was first seen waiting in the queue, by the database's clock. */
    seenAt: new Map<string, Date>(),
    async shop(usdcPerUnit: string): Promise<Shop> {
      const shop = await openShop({ chain: stack.chain, api: { url: gatewayUrl } }, { usdcPerUnit })
      shops.push(shop)
      return shop
    },
    /** Returns a new buyer with USDC. With `code`, it is a contract wallet whose code decides whether a signature is valid. */
    async buyer(code?: Hex, options: BuyerOptions = {}): Promise<Buyer> {
      const account = accounts.pop()
      if (!account) throw new Error(`more than ${buyers} buyers`)
      if (code === undefined) return { account, client: clientOf(account, options) }
      await chain.setCode({ address: account.address, bytecode: code })
      const signTypedData = async (): Promise<Hex> => `0x${'5a'.repeat(65)}`
      return {
        account,
        client: clientOf({ address: account.address, signTypedData, isContract: true }, options),
      }
    },
    async close() {
      await Promise.all(shops.map((shop) => shop.close()))
      await database.end({ timeout: 1 })
      await stack.close()
    },
  }
}

/** Freezes a process, or lets it continue. */
export function signal({ pid }: Service, name: 'SIGSTOP' | 'SIGCONT'): void {
  if (pid !== undefined) process.kill(pid, name)
}

/** Receives webhooks. With `answers` false, it is a tarpit, which reads the message and never answers. */
export async function openReceiver(onMessage: (body: string) => void, { answers = true } = {}) {
  const server: Server = createServer((request, response) => {
    let body = ''
    request.on('data', (chunk) => {
      body += chunk
    })
    request.on('end', () => {
      onMessage(body)
      if (answers) response.writeHead(204).end()
    })
  })
  server.listen(0, loopback)
  await once(server, 'listening')
  return {
    url: `http://${loopback}:${(server.address() as AddressInfo).port}/`,
    async close() {
      server.closeAllConnections()
      server.close()
      await once(server, 'close')
    },
  }
}

export async function registerWebhook(scene: Market, shop: Shop, url: string): Promise<void> {
  const response = await fetch(new URL(`/providers/${shop.providerId}/webhooks`, scene.gatewayUrl), {
    method: 'POST',
    headers: { 'content-type': 'application/json', authorization: `Bearer ${shop.apiKey}` },
    body: JSON.stringify({ url }),
  })
  if (response.status !== 201) throw new Error(`no webhook: ${await response.text()}`)
}
