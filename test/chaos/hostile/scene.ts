import { once } from 'node:events'
import { createServer, type Server } from 'node:http'
import type { AddressInfo } from 'node:net'
import { type Address, createTestClient, type Hex, http, publicActions } from 'viem'
import { generatePrivateKey, type PrivateKeyAccount, privateKeyToAccount } from 'viem/accounts'
import type { HoldReason } from '#ledger/queue/stages'
import { openDatabase } from '#ledger/store/database'
import { loopback, reservePort } from '#process/port'
import { formatUsdc, parseUsdc } from '#protocol/amount'
import { type Client, createClient } from '#sdk/client/createClient'
import type { Payer } from '#sdk/client/payer'
import { devAccount, devPrivateKey } from '../../../local/chain/accounts.ts'
import type { Service } from '../../../local/stack/service.ts'
import { type CutProxy, startCutProxy } from '../../support/cutProxy.ts'
import { createTestDatabase } from '../../support/database.ts'
import { openShop, type Shop } from '../../support/shop.ts'
import { startTestStack, type TestStack } from '../../support/stack.ts'
import { tokenOf } from '../../support/usdc.ts'

/** A keeper's process. */
export type Keeper = { name: string; service: Service; wallet?: Address }

/** A process of ours, with its own way to Postgres. */
export type Host = Keeper & { postgres: CutProxy }

export type Buyer = { account: PrivateKeyAccount; client: Client }

type BuyerOptions = Pick<Parameters<typeof createClient>[0], 'signatures' | 'tabs'>

export type Market = Awaited<ReturnType<typeof openMarket>>

export type Scene = Awaited<ReturnType<typeof openScene>>

export const usdcOfBuyer = '1000'

/** What keepers are told: to settle at once, and to give up soon what a dead one held. */
export const keeperEnv = {
  TRIGGER_TIME_SECONDS: '2',
  KEEPER_LEASE_MS: '3000',
  REBROADCAST_AFTER_MS: '1000',
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

/** By the clock alone, as real chains do: were each transaction a block of its own, strangers could outrun the index. */
export const clockwork = { blockTimeMs: 500, atOnce: false }

/** A second keeper with a wallet of its own, for a stack whose first one has the usual. */
export async function addKeeper(stack: TestStack, env: Record<string, string>): Promise<[Keeper, Keeper]> {
  const other = await stack.createService('keeper', { ...env, KEEPER_PRIVATE_KEYS: devPrivateKey(15) })
  await other.start()
  return [
    { name: 'keeper 1', service: stack.keeper, wallet: devAccount(1).address },
    { name: 'keeper 2', service: other, wallet: devAccount(15).address },
  ]
}

/**
 * The whole stack, with two keepers on wallets of their own, each process behind a proxy before Postgres. Of the network's three
 * RPC URLs the first was never there, and the second is a proxy before the chain.
 *
 * @param buyers how many there will be at most.
 */
export async function openScene(buyers: number) {
  const databaseUrl = await createTestDatabase()
  const hostsPostgres = await Promise.all(['api', 'keeper', 'keeper'].map(() => openProxy(databaseUrl)))
  const [first, second, third] = hostsPostgres as [CutProxy, CutProxy, CutProxy]
  let firstNode: CutProxy | undefined
  const deaths: string[] = []
  const stack = await startTestStack({
    databaseUrl,
    chain: clockwork,
    onDeath: (_, reason) => deaths.push(reason),
    rpcUrlOf: async ({ url, port }) => {
      firstNode = await startCutProxy(loopback, port)
      const dead = await reservePort()
      return [`http://${loopback}:${dead}`, `http://${loopback}:${firstNode.port}`, url].join(',')
    },
    env: {
      api: {
        ...{ ...gasEnv, ETH_USD: formatUsdc(usdPerToken) },
        ...{ DATABASE_URL: through(databaseUrl, first), WEBHOOK_ALLOW_PRIVATE: 'true' },
        TAB_BUDGET_USDC: tabBudget,
      },
      keeper: { ...keeperEnv, ...keeperGasEnv, DATABASE_URL: through(databaseUrl, second) },
    },
  })
  const [one, other] = await addKeeper(stack, {
    ...{ ...keeperEnv, ...keeperGasEnv, DATABASE_URL: through(databaseUrl, third) },
  })
  const keepers: Host[] = [
    { ...one, postgres: second },
    { ...other, postgres: third },
  ]
  const api: Host = { name: 'api', service: stack.api, postgres: first }
  if (!firstNode) throw new Error('no node')
  const proxies = [...hostsPostgres, firstNode]
  const market = await openMarket(stack, keepers, buyers)
  return {
    ...market,
    keepers,
    api,
    /** The first of the network's nodes that answers. */
    firstNode,
    /** Which processes of ours have ended. */
    readDead: () => [
      ...deaths,
      ...[...keepers, api].flatMap(({ name, service }) =>
        service.isRunning ? [] : [name, ...service.lastLines],
      ),
    ],
    async close() {
      for (const { service } of [...keepers, api]) signal(service, 'SIGCONT')
      await market.close()
      await Promise.all(proxies.map((proxy) => proxy.close()))
    },
  }
}

/**
 * Where honest buyers and providers meet, on a stack that runs.
 *
 * @param buyers how many there will be at most: they are given their USDC now, while gas is cheap.
 */
export async function openMarket(
  stack: TestStack,
  keepers: readonly Keeper[],
  buyers: number,
  gatewayUrl: string = stack.api.url,
) {
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
    /** Why payments waited for gas, by payment. */
    held: new Map<string, HoldReason>(),
    async shop(usdcPerUnit: string): Promise<Shop> {
      const shop = await openShop(stack, { usdcPerUnit, gatewayUrl })
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
      return { account, client: clientOf({ address: account.address, signTypedData }, options) }
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

async function openProxy(databaseUrl: string): Promise<CutProxy> {
  const { hostname, port } = new URL(databaseUrl)
  return startCutProxy(hostname, Number(port))
}

function through(databaseUrl: string, { port }: CutProxy): string {
  const url = new URL(databaseUrl)
  url.hostname = loopback
  url.port = String(port)
  return url.href
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
  const response = await fetch(new URL(`/providers/${shop.providerId}/webhooks`, scene.stack.api.url), {
    method: 'POST',
    headers: { 'content-type': 'application/json', authorization: `Bearer ${shop.apiKey}` },
    body: JSON.stringify({ url }),
  })
  if (response.status !== 201) throw new Error(`no webhook: ${await response.text()}`)
}
