import { cp, mkdir, readFile, writeFile } from 'node:fs/promises'
import { createServer, type Server } from 'node:http'
import { stripTypeScriptTypes } from 'node:module'
import { join } from 'node:path'
import { Client } from '@modelcontextprotocol/sdk/client/index.js'
import { StreamableHTTPClientTransport } from '@modelcontextprotocol/sdk/client/streamableHttp.js'
import { McpServer } from '@modelcontextprotocol/sdk/server/mcp.js'
import { StreamableHTTPServerTransport } from '@modelcontextprotocol/sdk/server/streamableHttp.js'
import { loopback, reservePort } from '@tollkeeper/runtime/port'
import { payingMcpClient, requirePayment } from '@tollkeeper/sdk/mcp/index'
import { parseUsdc } from '@tollkeeper/sdk/protocol/amount'
import type { Address, Hex } from 'viem'
import { generatePrivateKey, privateKeyToAccount, privateKeyToAddress } from 'viem/accounts'
import { afterAll, beforeAll, describe, expect, onTestFinished, test } from 'vitest'
import { type RegisteredProvider, registerProvider } from '../apps/devstack/stack/registerProvider.ts'
import { installPackages } from '../test/support/installed.ts'
import { killAll, type RunningCommand, root, runCommand } from '../test/support/processes.ts'
import { newBuyer, openProxiedShop, openShop, type Shop } from '../test/support/shop.ts'
import { useTestStack } from '../test/support/stack.ts'
import { until } from '../test/support/until.ts'
import { readBalance, tokenOf } from '../test/support/usdc.ts'
import { fillIn, layOut } from '../tools/generateDocs.ts'
import { useInstalled } from './install.ts'
import { paymentResponseOf, x402Buyers, x402FetchV1 } from './x402Clients.ts'

/*
 * Tests other people's unmodified programs, each in a separate process: buyers buy from our sellers, and sellers sell through our facilitator. The
 * table in docs/x402.md lists the results. To update it: `npm run test:compat -- compat/strangers.test.ts -u`.
 */

const price = '0.01'
const docs = join(root, 'docs/x402.md')

const stack = useTestStack({
  // Transactions are mined at once, so idle blocks would only slow down every process.
  chain: { network: 'base-sepolia', blockTimeMs: 5_000 },
  env: { keeper: { TRIGGER_TIME_SECONDS: '1' }, api: { UPSTREAM_ALLOW_PRIVATE: 'true' } },
})
const folder = useInstalled('strangers', ['--legacy-peer-deps', '--ignore-scripts'])
const closing: (() => Promise<void>)[] = []
/** The provider whose API key the sellers send to our facilitator. */
let seller: { apiKey: string }
beforeAll(async () => {
  seller = await registerProvider({
    gatewayUrl: stack.api.url,
    name: 'Strangers',
    network: 'base-sepolia',
    endpoints: [],
    address: newAccount().address,
  })
})
afterAll(async () => {
  for (const close of closing) await close()
})

const newAccount = () => privateKeyToAccount(generatePrivateKey())

async function newWallet(): Promise<Hex> {
  const key = generatePrivateKey()
  await stack.chain.mintUsdc([privateKeyToAddress(key)], parseUsdc('1'))
  return key
}

/** The results of this run, by program and capability. */
const seen = new Map<string, Partial<Record<Capability, string>>>()
const capabilities = ['buys over HTTP', 'buys over MCP', 'sells over HTTP', 'sells over MCP'] as const
type Capability = (typeof capabilities)[number]

function note(who: string, capability: Capability, outcome = 'yes'): void {
  seen.set(who, { ...seen.get(who), [capability]: outcome })
}

/** Runs a script of compat/strangers. */
function start(script: string, args: string[], env: Record<string, string>): RunningCommand {
  const running = runCommand(['node', join(folder.path, script), ...args], env, { cwd: folder.path })
  onTestFinished(() => killAll(running))
  return running
}

type Outcome = {
  status?: number
  body?: { paymentId?: string; verified?: boolean }
  result?: { isError?: boolean; content: { text: string }[] }
  proof?: { success?: boolean; transaction?: string; status?: string; reference?: string }
  error?: string
}

/** Runs a buyer until it ends. Returns the result of each of its purchases. */
async function buyAt(script: string, who: string, ...urls: string[]): Promise<Outcome[]> {
  const running = start(script, [who, ...urls], {
    PRIVATE_KEY: await newWallet(),
    RPC_URL: stack.chain.url,
  })
  await running.exited
  const lines = running.stdout().split('\n')
  const outcomes = lines.flatMap((line) =>
    line.startsWith('OUTCOME ') ? [JSON.parse(line.slice('OUTCOME '.length)) as Outcome] : [],
  )
  expect(outcomes.length, running.output()).toBe(urls.length)
  return outcomes
}

/** Payments to our sellers. The last test waits until they have settled. */
const paid: string[] = []

/** Lets a buyer buy once from each seller. */
async function expectSales(who: string, shops: Shop[]): Promise<void> {
  const before = shops.map(({ served }) => served())
  const outcomes = await buyAt('buyers.js', who, ...shops.map(({ url }) => url))
  expect(outcomes.map(({ error, status }) => error ?? status)).toEqual(shops.map(() => 200))
  expect(shops.map(({ served }, index) => served() - (before[index] ?? 0))).toEqual(shops.map(() => 1))
  for (const { body, proof } of outcomes) {
    expect(body?.verified).toBe(true)
    expect(proof).toMatchObject({ success: true, extra: { paymentId: body?.paymentId } })
    paid.push(String(body?.paymentId))
  }
}

describe('buyers over HTTP', () => {
  let shop: Shop
  let shopV1: Shop
  let proxied: Shop
  let withoutTabs: Shop
  beforeAll(async () => {
    shop = await openShop(stack, { usdcPerUnit: price, timeout: 60_000 })
    shopV1 = await openShop(stack, { usdcPerUnit: price, timeout: 60_000, gate: { acceptX402V1: true } })
    proxied = await openProxiedShop(stack, price, { acceptX402V1: true })
    withoutTabs = await openShop(stack, { usdcPerUnit: price, timeout: 60_000, gate: { tabs: false } })
  })
  afterAll(async () => {
    for (const one of [shop, shopV1, proxied, withoutTabs]) await one?.close()
  })

  const v2 = ['@x402/fetch', '@x402/axios', '@coinbase/cdp-sdk', '@coinbase/agentkit', '@dexterai/x402']
  test.each([...v2, '@faremeter/fetch', 'mppx'])(
    'default: %s buys from the middleware and through the gateway’s proxy',
    async (who) => {
      await expectSales(who, [shop, proxied])
      note(who, 'buys over HTTP')
    },
  )

  test('default: thirdweb, which refuses unknown schemes, buys if no tab is offered', async () => {
    await expectSales('thirdweb', [withoutTabs])
    note('thirdweb', 'buys over HTTP', 'yes, where `tabs` is `false`')
  })

  test.each(['x402-fetch', 'x402-axios'])(
    'default: %s, a client of x402 v1, buys if the seller serves v1',
    async (who) => {
      await expectSales(who, [shopV1, proxied])
      note(who, 'buys over HTTP', 'yes, where `acceptX402V1` is `true`')
    },
  )
})

describe('buyers over MCP', () => {
  let server: Server
  let url: string
  beforeAll(async () => {
    const { apiKey, providerId } = await registerProvider({
      gatewayUrl: stack.api.url,
      name: 'Tools',
      network: 'base-sepolia',
      address: newAccount().address,
      endpoints: [{ url: 'mcp://tool/weather', method: 'POST', usdcPerUnit: price }],
    })
    const gate = { gatewayUrl: stack.api.url, providerId, apiKey, pricing: { usdcPerUnit: price } }
    const port = await reservePort()
    url = `http://${loopback}:${port}/mcp`
    server = createServer(async (request, response) => {
      const tools = new McpServer({ name: 'weather', version: '1.0.0' })
      requirePayment(gate)(tools).registerTool(
        ...(['weather', { description: 'The weather' }] as const),
        async ({ payment: { paymentId } }) => ({ content: [{ type: 'text', text: paymentId }] }),
      )
      const transport = new StreamableHTTPServerTransport()
      response.on('close', () => void tools.close())
      await tools.connect(transport as never)
      await transport.handleRequest(request, response)
    }).listen(port, loopback)
  })
  afterAll(() => {
    server?.closeAllConnections()
    server?.close()
  })

  test.each(['agents', 'x402-mcp', 'mppx'])('default: %s buys a tool', async (who) => {
    const [{ error, result, proof } = {}] = await buyAt('mcpBuyers.js', who, url)
    expect([error, result?.isError ?? false], JSON.stringify(result)).toEqual([undefined, false])
    const paymentId = result?.content[0]?.text
    if (who === 'mppx') expect(proof).toMatchObject({ status: 'success', reference: paymentId })
    else expect(proof).toMatchObject({ success: true, extra: { paymentId } })
    paid.push(String(paymentId))
    note(who, 'buys over MCP')
  })
})

/** Starts a seller. Returns its URL and a function that reads what it was paid. */
async function open(script: string, who: string) {
  const { address } = newAccount()
  const running = start(script, [who], {
    FACILITATOR_URL: stack.keeper.url,
    KEYED_FACILITATOR_URL: `${stack.keeper.url}/k/${seller.apiKey}`,
    API_KEY: seller.apiKey,
    PAY_TO: address,
    USDC_ADDRESS: tokenOf(stack.chain),
  })
  const url = (await running.line(/^selling /)).slice('selling '.length)
  return { url, running, balance: () => balanceOf(address) }
}

const balanceOf = (address: Address) => readBalance(stack.rpc, tokenOf(stack.chain), address)

async function expectMined(transaction: unknown): Promise<void> {
  const { status } = await stack.rpc.getTransactionReceipt({ hash: transaction as Hex })
  expect(status).toBe('success')
}

describe('sellers over HTTP', () => {
  test.each([
    ['@x402/express', x402Buyers['@x402/fetch']],
    ['@x402/hono', x402Buyers['@x402/fetch']],
    ['x402-express', x402FetchV1],
    ['x402-hono', x402FetchV1],
    ['@dexterai/x402', x402Buyers['@x402/fetch']],
    ['@faremeter/middleware', x402Buyers['@x402/fetch']],
    ['mppx', x402Buyers['@x402/fetch']],
  ])('default: %s sells through our facilitator', async (who, buy) => {
    const { url, balance, running } = await open('sellers.js', who)
    const bought = await buy(privateKeyToAccount(await newWallet()), url)
    expect([bought.status, bought.body], running.output()).toEqual([200, { weather: 'sunny' }])
    expect(await balance()).toBe(parseUsdc(price))
    await expectMined(paymentResponseOf(bought).transaction)
    note(who, 'sells over HTTP')
  })
})

describe('Next.js', () => {
  let origin: string
  let ours: RegisteredProvider
  const { address: payTo } = newAccount()
  beforeAll(async () => {
    const port = await reservePort()
    origin = `http://${loopback}:${port}`
    ours = await registerProvider({
      gatewayUrl: stack.api.url,
      name: 'Next.js',
      network: 'base-sepolia',
      address: newAccount().address,
      endpoints: [{ url: `${origin}/forecast`, usdcPerUnit: price }],
    })
    const { sdk } = await installPackages()
    await cp(sdk, join(folder.path, 'node_modules/@tollkeeper/sdk'), { recursive: true })
    // `npm run check` checks the example's types. The app has no compiler, so strip the types.
    const route = await readFile(join(root, 'examples/next/app/forecast/route.ts'), 'utf8')
    await mkdir(join(folder.path, 'app/forecast'))
    await writeFile(join(folder.path, 'app/forecast/route.js'), stripTypeScriptTypes(route))
    const env = {
      FACILITATOR_URL: stack.keeper.url,
      API_KEY: seller.apiKey,
      PAY_TO: payTo,
      GATEWAY_URL: stack.api.url,
      PROVIDER_ID: ours.providerId,
      PROVIDER_API_KEY: ours.apiKey,
      NEXT_TELEMETRY_DISABLED: '1',
    }
    const next = join(folder.path, 'node_modules/.bin/next')
    const build = runCommand([next, 'build'], env, { cwd: folder.path })
    expect(await build.exited, build.output()).toBe(0)
    const server = runCommand([next, 'start', '--hostname', loopback, '--port', `${port}`], env, {
      cwd: folder.path,
    })
    closing.push(() => killAll(server))
    await server.line(/Ready/)
  }, 900_000)

  test('default: our SDK and x402 clients pay for the example’s route', async () => {
    const url = `${origin}/forecast`
    const { client } = await newBuyer(stack, '1')
    const { data, paymentId } = await client.request(url)
    expect(data).toMatchObject({ celsius: 19, paymentId })
    const bought = await x402Buyers['@x402/fetch'](privateKeyToAccount(await newWallet()), url)
    expect(bought).toMatchObject({ status: 200, body: { celsius: 19 } })
  })

  test.each([
    ['x402-next', 'x402-next', x402FetchV1],
    ['@x402/next', 'x402-v2', x402Buyers['@x402/fetch']],
  ])('default: %s sells through our facilitator', async (who, path, buy) => {
    const before = await balanceOf(payTo)
    const bought = await buy(privateKeyToAccount(await newWallet()), `${origin}/${path}`)
    expect([bought.status, bought.body]).toEqual([200, { weather: 'sunny' }])
    await expectMined(paymentResponseOf(bought).transaction)
    expect((await balanceOf(payTo)) - before).toBe(parseUsdc(price))
    note(who, 'sells over HTTP')
  })
})

describe('sellers over MCP', () => {
  test.each(['agents', 'x402-mcp', 'mppx'])(
    'default: %s sells a tool through our facilitator',
    async (who) => {
      const { url, balance, running } = await open('mcpSellers.js', who)
      const client = new Client({ name: 'ours', version: '1.0.0' })
      await client.connect(new StreamableHTTPClientTransport(new URL(url)) as never)
      onTestFinished(() => client.close())
      const paying = payingMcpClient(client, {
        gatewayUrl: stack.api.url,
        network: 'base-sepolia',
        usdcAddress: tokenOf(stack.chain),
        walletPrivateKey: await newWallet(),
        limits: { perPayment: price },
        tabs: false,
        otherSellers: true,
      })
      const { content } = await paying.callTool({ name: 'weather', arguments: {} })
      expect(content, running.output()).toEqual([{ type: 'text', text: 'sunny' }])
      expect(await balance()).toBe(parseUsdc(price))
      note(who, 'sells over MCP')
    },
  )
})

test('behavior: the keeper settles all payments that the clients made in this run', async () => {
  for (const paymentId of paid) {
    await until(`${paymentId} is settled`, async () => {
      const { body } = await stack.get(`/payments/${paymentId}`)
      return body.payment_status === 'settled'
    })
  }
})

test('behavior: the table in docs/x402.md lists what this run observed', async () => {
  const rows = [...seen].map(async ([who, outcomes]) => {
    const { version } = JSON.parse(
      await readFile(join(folder.path, 'node_modules', who, 'package.json'), 'utf8'),
    )
    return [`\`${who}\``, version, ...capabilities.map((capability) => outcomes[capability] ?? '')]
  })
  const table = layOut([['program', 'version', ...capabilities], ...(await Promise.all(rows))])
  const committed = await readFile(docs, 'utf8')
  await expect(fillIn(committed, 'strangers', table.join('\n'))).toMatchFileSnapshot(docs)
})
