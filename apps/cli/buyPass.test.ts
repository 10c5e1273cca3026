import { once } from 'node:events'
import { mkdtemp, readdir, readFile, rm, stat, writeFile } from 'node:fs/promises'
import type { AddressInfo } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { type ServerType, serve } from '@hono/node-server'
import { type PaymentVariables, requirePayment } from '@tollkeeper/sdk/middleware/hono'
import type { PassOption } from '@tollkeeper/sdk/middleware/passOption'
import { Hono } from 'hono'
import { generatePrivateKey, privateKeyToAddress } from 'viem/accounts'
import { afterAll, beforeAll, beforeEach, expect, onTestFinished, test } from 'vitest'
import { runCli } from '../../test/support/cli.ts'
import { call, openShop, type Shop } from '../../test/support/gateway.ts'
import { useGateway } from '../../test/support/useGateway.ts'

// Each purchase runs in a new process. The seller uses the real middleware and the real gateway.

const gateway = useGateway()
let gatewayUrl: string
let seller: Hono<{ Variables: PaymentVariables }>
let sellerUrl: string
let shop: Shop
const servers: ServerType[] = []

async function listen(fetch: (request: Request) => Response | Promise<Response>): Promise<string> {
  const server = serve({ fetch, hostname: '127.0.0.1', port: 0 })
  servers.push(server)
  await once(server, 'listening')
  return `http://127.0.0.1:${(server.address() as AddressInfo).port}`
}

beforeAll(async () => {
  let app = gateway.app
  gatewayUrl = await listen((request) => app.fetch(request))
  app = gateway.another({ issuer: gatewayUrl })
  sellerUrl = await listen((request) => seller.fetch(request))
  shop = await openShop(gateway.app)
})
afterAll(() => {
  for (const server of servers) server.close()
})

let folder: string
let env: Record<string, string>
beforeEach(async () => {
  folder = await mkdtemp(join(tmpdir(), 'tollkeeper-pass-'))
  onTestFinished(() => rm(folder, { recursive: true }))
  const WALLET_PRIVATE_KEY = generatePrivateKey()
  await gateway.chain.mintUsdc([privateKeyToAddress(WALLET_PRIVATE_KEY)], 100_000n)
  const USDC_ADDRESS = gateway.served.token
  env = { WALLET_PRIVATE_KEY, NETWORK: 'localhost', GATEWAY_URL: gatewayUrl, USDC_ADDRESS }
})

let sold = 0

/** Sells a pass at a new endpoint. @returns its URL, and the payments of the requests that were served. */
async function sell(pass: PassOption) {
  const url = `${sellerUrl}/feed${sold++}`
  const { body } = await call<{ endpointId: string }>(
    gateway.app,
    'POST',
    `/providers/${shop.providerId}/endpoints`,
    {
      json: { url, method: 'GET', pricing: { usdcPerUnit: '0.05' }, walletId: shop.walletId },
      key: shop.key,
    },
  )
  const served: string[] = []
  seller = new Hono<{ Variables: PaymentVariables }>()
  const { providerId, key: apiKey } = shop
  const { endpointId } = body
  const pricing = { usdcPerUnit: '0.05', pass }
  seller.use(requirePayment({ gatewayUrl, providerId, apiKey, endpointId, publicUrl: sellerUrl, pricing }))
  seller.get('*', (c) => {
    served.push(c.get('payment').paymentId)
    return c.text('tick')
  })
  return { url, served }
}

const buy = (url: string, args: string[] = [], more: Record<string, string> = {}) =>
  runCli(['buy', url, ...args], { cwd: folder, env: { ...env, ...more } })

test('`buy` uses a pass that another process bought, and does not pay again', async () => {
  const { url, served } = await sell('1h')
  const first = await buy(url, ['--state-folder', 'state'])
  expect([first.status, first.stdout]).toEqual([0, 'tick'])
  expect(first.stderr).toMatch(/^paid: payment pay_\w+\npass: bought, valid until [\dT:-]+Z\n$/)
  const second = await buy(url, ['--max', '0'], { STATE_FOLDER: 'state' })
  expect([second.status, second.stdout]).toEqual([0, 'tick'])
  expect(second.stderr).toBe(first.stderr.replace(/^.*\npass: bought/, 'pass: used'))
  expect(served).toHaveLength(2)
  expect(new Set(served).size).toBe(1)

  const state = join(folder, 'state')
  const kept = (await readdir(state)).filter((name) => name.startsWith('pass-'))
  expect(kept).toHaveLength(1)
  expect((await stat(join(state, kept[0] ?? ''))).mode & 0o777).toBe(0o600)
  expect(await readFile(join(state, kept[0] ?? ''), 'utf8')).not.toContain(env.WALLET_PRIVATE_KEY)

  // Without --state-folder, the pass is lost when the process exits.
  const third = await buy(url)
  expect(third.stderr).toMatch(/pass: bought, .*\. To use it again, buy with --state-folder\n$/)
  expect(new Set(served).size).toBe(2)
})

test('`buy --json` prints the pass and its remaining requests, and buys another pass when no requests remain', async () => {
  const { url, served } = await sell({ requests: 2, boundTo: 'bearer' })
  const found: Record<string, unknown>[] = []
  for (let n = 0; n < 3; n++) {
    const { status, stdout, stderr } = await buy(url, ['--state-folder', 'state', '--json'])
    expect([status, stderr]).toEqual([0, expect.stringContaining('pass: ')])
    found.push(JSON.parse(stdout))
  }
  const [bought, used, next] = found
  const expiresAt = expect.stringMatching(/^\d{4}-.*Z$/)
  expect(bought).toEqual({
    url,
    status: 200,
    paymentId: served[0],
    receipt: expect.stringMatching(/^ey/),
    sellerReport: null,
    pass: { paymentId: served[0], expiresAt, left: 1, isBought: true },
    data: 'tick',
  })
  expect(used).toMatchObject({
    paymentId: null,
    receipt: null,
    pass: { paymentId: served[0], left: 0, isBought: false },
  })
  expect(next).toMatchObject({ pass: { paymentId: served[2], left: 1, isBought: true } })
  expect(served[2]).not.toBe(served[0])
  // The client has deleted the used-up pass.
  const kept = (await readdir(join(folder, 'state'))).filter((name) => name.startsWith('pass-'))
  expect(kept).toHaveLength(1)
})

test('`buy` reports an unreadable pass file, and uses the passes of the other files', async () => {
  const { url, served } = await sell('1h')
  await buy(url, ['--state-folder', 'state'])
  await writeFile(join(folder, 'state', 'pass-0.json'), '{"id"')
  const { status, stderr } = await buy(url, ['--state-folder', 'state', '-o', 'answer.txt', '--json'])
  expect([status, stderr]).toEqual([
    0,
    expect.stringMatching(/pass-0\.json is not JSON: move it away.*\npass: used/),
  ])
  expect(new Set(served).size).toBe(1)
  expect(await readFile(join(folder, 'answer.txt'), 'utf8')).toBe('tick')
})
