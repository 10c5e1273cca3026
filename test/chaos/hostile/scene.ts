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

/** A process of ours, with its own way to Postgres. */
export type Host = { name: string; service: Service; postgres: CutProxy; wallet?: Address }

export type Buyer = { account: PrivateKeyAccount; client: Client }

type BuyerOptions = Pick<Parameters<typeof createClient>[0], 'signatures' | 'tabs'>

export type Market = Awaited<ReturnType<typeof openMarket>>

export type Scene = Awaited<ReturnType<typeof openScene>>

export const usdcOfBuyer = '1000'

/** What keepers are told: to settle at once, and to give up soon what a dead one held. */
export const keeperEnv = {
  TRIGGER_TIME_SECONDS: '2',
  KEEPER_LEASE_MS: '3000',
  REPLACE_AFTER_MS: '3000',
}

/** What a gas token costs in the stack, USDC base units. */
export const usdPerToken = 3_000_000_000n
/** What the operator gives a day. */
export const gasBudget = { common: '0.003', fees: '0.005' }
/** What new payers may be lent on tabs. */
export const tabBudget = '100'
/**
 * What gas costs, and may: the fee of half a cent carries that of two signatures by keys, 381 base units at the most, and not
 * that of a wallet's with code, 1,630. The tip is the price: blocks that are nearly empty bring the base fee down to nothing.
 */
const gasEnv = {
  PRIORITY_FEE_WEI: '700000',
  GAS_ALLOWANCE_USD: gasBudget.common,
}
const keeperGasEnv = { ...gasEnv, MAX_GAS_PER_FEE: '10', KEEPER_DAILY_BUDGET_USD: gasBudget.fees }

/** Stays after the run, since a failure is explained there. */
const logFolder = join(root, 'reports/hostile')

/** By the clock alone, as real chains do: were each transaction a block of its own, strangers could outrun the index. */
const clockwork = { blockTimeMs: 500, atOnce: false }

/**
 * The whole stack: what compose.yaml runs, with two gateways behind a round-robin front, two keepers on wallets of their own, and a
 * reader of the index. Each gateway and keeper reaches Postgres through a proxy of its own, and PgBouncer where that is installed. Of
 * the network's three RPC URLs the first was never there, and the second is a proxy before the chain.
 *
 * @param buyers how many there will be at most.
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
      keeper: { ...keeperEnv, ...keeperGasEnv, ...ofKeeper.env },
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
    /** And the index's reader. */
    processes,
    front,
    pooler,
    reader,
    /** The first of the network's nodes that answers. */
    firstNode,
    /** Parts that a test has killed and not yet started again. */
    killed,
    /** Which processes of ours have ended. */
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
 * Where honest buyers and providers meet, on a stack that runs.
 *
 * @param buyers how many there will be at most: they are given their USDC now, while gas is cheap.
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
      // Each a payment of its own, unless it is said.
      tabs: false,
      ...options,
      gatewayUrl,
      network: stack.chain.network,
      account,
      usdcAddress: tokenOf(stack.chain),
      maxPaymentUsdc: '20',
      timeout: 30_000,
    })
  return {
    stack,
    gatewayUrl,
    database,
    chain,
    token: tokenOf(stack.chain),
    keepers,
    /** Everything that strangers did, for the message of a failure. */
    events: [] as string[],
    /** Payers with the worst of intentions, by what they do. */
    liars: new Map<Address, string>(),
    /** Wallets of suspended providers. */
    suspended: new Set<Address>(),
    /** How often sellers heard that a payment was settled, by its nonce. */
    heard: new Map<Hex, number>(),
    /** What was answered to who only read, and isn't what was asked for, or a limit. */
    unread: [] as string[],
    /** What strangers got that no one may get. */
    won: [] as string[],
    /** Names of the plays that got as far as trying. */
    acted: new Set<string>(),
    /** Payments of tabs that their buyers settled on terms of their own. */
    ownTerms: new Set<string>(),
    /** Why payments waited for gas, by payment. */
    held: new Map<string, HoldReason>(),
    async shop(usdcPerUnit: string): Promise<Shop> {
      const shop = await openShop({ chain: stack.chain, api: { url: gatewayUrl } }, { usdcPerUnit })
      shops.push(shop)
      return shop
    },
    /** Somebody new with USDC; with `code`, a wallet that takes any signature for as good as its code says. */
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

/** Stops a process as a frozen host does, or lets it go on. */
export function signal({ pid }: Service, name: 'SIGSTOP' | 'SIGCONT'): void {
  if (pid !== undefined) process.kill(pid, name)
}

/** Receives webhooks: `answer` false makes it a tarpit, which takes the message and says nothing. */
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
