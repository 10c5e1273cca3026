import { once } from 'node:events'
import { mkdtemp, rm, writeFile } from 'node:fs/promises'
import type { Server } from 'node:http'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { serve } from '@hono/node-server'
import { loadNetworksFile } from '@tollkeeper/chain/networksFile'
import { openDatabase } from '@tollkeeper/ledger/store/database'
import { loopback, reservePort } from '@tollkeeper/runtime/port'
import { networkVariable } from '@tollkeeper/runtime/variables'
import { createClient } from '@tollkeeper/sdk/client/createClient'
import { requirePayment } from '@tollkeeper/sdk/middleware/hono'
import { parseUsdc } from '@tollkeeper/sdk/protocol/amount'
import type { NetworkDefinition } from '@tollkeeper/sdk/protocol/networkDefinition'
import { networkByName } from '@tollkeeper/sdk/protocol/networks'
import { ExactEvmScheme } from '@x402/evm/exact/client'
import { wrapFetchWithPaymentFromConfig } from '@x402/fetch'
import { Hono } from 'hono'
import type { Address, Hash } from 'viem'
import { generatePrivateKey, privateKeyToAccount } from 'viem/accounts'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { playedPostingGas } from '../../apps/devstack/chain/prepareChain.ts'
import { desktop, launchBrowser, openTab } from '../support/browser.ts'
import { runCli } from '../support/cli.ts'
import { forgetOwnNetworks } from '../support/ownNetworks.ts'
import { startTestStack, type TestStack } from '../support/stack.ts'
import { until } from '../support/until.ts'
import { randomHex } from '../support/usdc.ts'
import { chooseBrowser } from './dashboard/chooseBrowser.ts'

// The whole system on a network that only a file describes, with another name, another chain id, USDC's real code at another
// address, and Arbitrum's way of charging for data. The local chain simulates Arbitrum's NodeInterface at its address.

const name = 'acme-one'
const chainId = 7_654_321
const usdc = '0x5afe5afe5afe5afe5afe5afe5afe5afe5afe5afe'
const definition: NetworkDefinition = {
  chainId,
  usdc,
  eip712: { name: 'USDC', version: '2' },
  testnet: true,
  confirmations: 2,
  blockTimeMs: 500,
  gasModel: 'arbitrum',
  gasToken: 'ACME',
  gasTokenUsd: '2',
  maxFeeGwei: 50,
  batchGas: 6_000_000,
  explorerUrl: 'https://explorer.acme.example',
}
/** An address without a contract. */
const fake = '0x00000000000000000000000000000000000fa4e5'

let folder: string
let networksFile: string
let stack: TestStack
let shop: Server
let url: string
let provider: { providerId: string; apiKey: string }
const wallet = randomHex(20)

forgetOwnNetworks()

beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'tollkeeper-own-network-'))
  networksFile = join(folder, 'networks.json')
  await writeFile(networksFile, JSON.stringify({ [name]: definition }))
  // The processes of the stack inherit this variable.
  process.env.NETWORKS_FILE = networksFile
  loadNetworksFile(process.env)
  stack = await startTestStack({
    chain: { network: name },
    env: { keeper: { TRIGGER_TIME_SECONDS: '1' } },
  })
  await openShop()
})
afterAll(async () => {
  delete process.env.NETWORKS_FILE
  shop?.close()
  await stack?.close()
  await rm(folder, { recursive: true, force: true })
})

async function register<Body>(path: string, body: unknown): Promise<Body> {
  const answer = await fetch(new URL(path, stack.api.url), {
    method: 'POST',
    headers: {
      'content-type': 'application/json',
      ...(provider && { authorization: `Bearer ${provider.apiKey}` }),
    },
    body: JSON.stringify(body),
  })
  expect(answer.status).toBe(201)
  return (await answer.json()) as Body
}

async function openShop(): Promise<void> {
  provider = await register('/providers', { name: 'Weather' })
  const at = `/providers/${provider.providerId}`
  const { walletId } = await register<{ walletId: string }>(`${at}/wallets`, {
    network: name,
    address: wallet,
  })
  const port = await reservePort()
  url = `http://${loopback}:${port}/weather`
  const pricing = { usdcPerUnit: '0.01' }
  await register(`${at}/endpoints`, { url, method: 'GET', walletId, pricing })
  const gate = requirePayment({
    gatewayUrl: stack.api.url,
    ...provider,
    pricing,
    network: networkByName(name),
    timeout: 20_000,
  })
  const app = new Hono().get('/weather', gate, (c) => c.text('sunny'))
  shop = serve({ fetch: app.fetch, port, hostname: loopback }) as Server
  await once(shop, 'listening')
}

async function fundedKey() {
  const privateKey = generatePrivateKey()
  await stack.chain.mintUsdc([privateKeyToAccount(privateKey).address], parseUsdc('1'))
  return privateKey
}

async function untilSettled(paymentId: string): Promise<Hash> {
  let hash: Hash | undefined
  await until('it is settled', async () => {
    const { body } = await stack.get(`/payments/${paymentId}`)
    expect(body.network).toBe(name)
    hash = (body as { provider: { transactionHash: Hash } }).provider.transactionHash
    return body.payment_status === 'settled'
  })
  return hash as Hash
}

/** Returns the network names in the database. A network's name never changes there. */
async function readNetworks(): Promise<string[]> {
  const sql = openDatabase({ url: stack.databaseUrl, max: 1, applicationName: 'test' })
  const rows = await sql<{ name: string }[]>`select name from network order by chain_id`
  await sql.end()
  return rows.map(({ name }) => name)
}

const executable = chooseBrowser('a network from a file')

describe('a network described only by a file', () => {
  const receipts: string[] = []

  test('supports selling, buying, settling and auditing', async () => {
    const client = createClient({
      gatewayUrl: stack.api.url,
      walletPrivateKey: await fundedKey(),
      network: networkByName(name),
      limits: { perPayment: '0.01' },
      timeout: 60_000,
    })
    const { data, paymentId = '', receipt = '' } = await client.request(url)
    expect(data).toBe('sunny')
    const hash = await untilSettled(paymentId)
    receipts.push(receipt)

    const { gas } = await stack.rpc.getTransaction({ hash })
    expect(gas).toBeGreaterThan(BigInt(2 * playedPostingGas))
    const file = join(folder, 'receipts.jsonl')
    await writeFile(file, receipts.join('\n'))
    await until('it is confirmed', async () => {
      const { blockNumber } = await stack.rpc.getTransactionReceipt({ hash })
      return (await stack.rpc.getBlockNumber()) >= blockNumber + 2n
    })
    const deployments = join(folder, 'deployments.json')
    await writeFile(deployments, JSON.stringify(stack.chain.deployments))
    const audited = await runCli(
      ['audit', '--receipts', file, '--rpc', stack.chain.url, '--deployments', deployments, '--json'],
      { cwd: folder, env: { NETWORKS_FILE: networksFile } },
    )
    expect(JSON.parse(audited.stdout)).toMatchObject({
      reconciled: true,
      states: { settled: 1 },
      heads: [{ network: name }],
    })
    expect(audited.status).toBe(0)
  })

  test("works with x402's own client, which doesn't know the network's name", async () => {
    const account = privateKeyToAccount(await fundedKey())
    const payingFetch = wrapFetchWithPaymentFromConfig(fetch, {
      schemes: [{ network: `eip155:${chainId}`, client: new ExactEvmScheme(account) }],
      spendControls: false,
    })
    const answer = await payingFetch(url)
    expect([answer.status, await answer.text()]).toEqual([200, 'sunny'])
  })

  test('appears by its name in views, metrics, the API description and the facilitator', async () => {
    const { body } = await stack.get('/networks')
    expect((body.networks as unknown[])[0]).toEqual({
      network: name,
      chainId,
      testnet: true,
      asset: usdc,
      eip712: { name: 'USDC', version: '2' },
      confirmations: 2,
      blockTimeMs: 500,
      explorerUrl: 'https://explorer.acme.example',
      status: 'served',
    })
    const openapi = JSON.stringify((await stack.get('/openapi/gateway.json')).body)
    expect(openapi).toContain(`"avalanche-fuji","localhost","${name}"`)
    const metrics = await (await fetch(new URL('/metrics', stack.keeper.url))).text()
    expect(metrics).toMatch(new RegExp(`^tollkeeper_\\w+\\{[^}]*network="${name}"`, 'm'))
    const supported = await (await fetch(new URL('/supported', stack.keeper.url))).text()
    expect(supported).toContain(`eip155:${chainId}`)
    const sold = await fetch(new URL(`/providers/${provider.providerId}/payments`, stack.api.url), {
      headers: { authorization: `Bearer ${provider.apiKey}` },
    })
    expect(await sold.json()).toMatchObject({ payments: [{ network: name }, { network: name }] })
  })

  test('is checked by doctor', async () => {
    const { stdout } = await runCli(['doctor', '--json'], {
      cwd: folder,
      env: { ...stack.env, NETWORKS_FILE: networksFile },
    })
    const checks = (JSON.parse(stdout) as { checks: { name: string; status: string }[] }).checks
    for (const what of ['RPC', 'USDC', 'BatchSettlement'])
      expect(checks).toContainEqual(expect.objectContaining({ name: `${name}: ${what}`, status: 'ok' }))
  })

  test.runIf(executable !== undefined)(
    'appears in the dashboard with its name and kind of money',
    async () => {
      const browser = await launchBrowser(executable as string)
      try {
        const { page, errors } = await openTab(browser, stack.api.url, desktop)
        await page.goto(`${stack.api.url}/dashboard/#/network`)
        await page.getByText(`Everything that settled on ${name} (testnet funds),`).waitFor()
        expect(errors).toEqual([])
      } finally {
        await browser.close()
      }
    },
  )
})

// Files as they would be if an adversary edited the operator's file, or the operator copied a stranger's file.
test.each<[string, string, Partial<NetworkDefinition>, Address, RegExp]>([
  [
    'a wrong domain',
    name,
    { eip712: { name: 'USD Coin', version: '2' } },
    usdc,
    /name\(\) of USDC at 0x5afe\S+ should be USD Coin, but on the chain it is USDC/,
  ],
  [
    "someone else's chain id",
    'acme-two',
    { chainId: chainId + 1 },
    usdc,
    /acme-two: chain id should be 7654322, but on the chain it is 7654321; check RPC_URL_ACME_TWO, NETWORKS_FILE/,
  ],
  [
    'another token than in the deployment',
    name,
    { usdc: fake },
    usdc,
    /DEPLOYMENTS_FILE: expected acme-one with the USDC of NETWORKS_FILE, 0x00000000000000000000000000000000000fa4e5/,
  ],
  [
    'a fake USDC',
    name,
    { usdc: fake },
    fake,
    /acme-one: could not read the chain and its USDC at 0x0{35}fa4e5/,
  ],
  [
    'the chain id of Base',
    'my-base',
    { chainId: 8453 },
    usdc,
    /my-base\.chainId must be one that no other network has. 8453 is taken by base/,
  ],
])(
  'a gateway whose network file has %s doesn’t start, and stores no network',
  async (_, network, changes, token, message) => {
    const wrong = join(folder, 'wrong.json')
    await writeFile(wrong, JSON.stringify({ [network]: { ...definition, ...changes } }))
    const deployments = join(folder, 'wrong-deployments.json')
    const deployment = { ...stack.chain.deployments[name], usdc: token }
    await writeFile(deployments, JSON.stringify({ [network]: deployment }))
    const before = await readNetworks()
    const { status, stdout, stderr } = await runCli(['api'], {
      cwd: folder,
      env: {
        ...stack.env,
        NETWORKS_FILE: wrong,
        DEPLOYMENTS_FILE: deployments,
        NETWORKS: network,
        [networkVariable('RPC_URL', network)]: stack.chain.url,
        MACAROON_SECRETS: `a:${'1'.repeat(64)}`,
        API_PORT: '0',
      },
    })
    expect(status).not.toBe(0)
    expect(stdout + stderr).toMatch(message)
    expect(await readNetworks()).toEqual(before)
  },
)
