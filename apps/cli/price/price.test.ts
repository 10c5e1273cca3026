import { once } from 'node:events'
import { createServer, type OutgoingHttpHeaders } from 'node:http'
import type { AddressInfo } from 'node:net'
import { networkByName } from '@tollkeeper/sdk/protocol/networks'
import { encodePaymentHeader } from '@tollkeeper/sdk/protocol/x402'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { useCliGateway } from '../../../test/support/cliGateway.ts'
import { call, openShop } from '../../../test/support/gateway.ts'

const cli = useCliGateway()

type Reply = { status: number; headers?: OutgoingHttpHeaders; body?: unknown }

/** The seller's responses, by path. */
const replies = new Map<string, Reply>()
let requests = 0
const server = createServer(({ url = '' }, response) => {
  requests += 1
  const { status, headers = {}, body = {} } = replies.get(url) ?? { status: 404 }
  response.writeHead(status, { 'content-type': 'application/json', ...headers }).end(JSON.stringify(body))
})
let seller: string

beforeAll(async () => {
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  seller = `http://127.0.0.1:${(server.address() as AddressInfo).port}`
})
afterAll(() => server.close())

const payTo = '0x1000000000000000000000000000000000000001'

function acceptsOf(network: 'base' | 'base-sepolia', amount: string) {
  const { caip2, usdc, eip712 } = networkByName(network)
  return { scheme: 'exact', network: caip2, asset: usdc, amount, payTo, maxTimeoutSeconds: 60, extra: eip712 }
}

async function price(path: string, args: string[] = [], env: Record<string, string> = {}) {
  const { status, stdout, stderr } = await cli.run(['price', `${seller}${path}`, ...args, '--json'], env)
  return { status, stderr, found: stdout === '' ? undefined : JSON.parse(stdout) }
}

describe('a seller of x402 v2', () => {
  beforeAll(() => {
    const accepts = [acceptsOf('base', '50000'), acceptsOf('base-sepolia', '20000')]
    const required = { x402Version: 2, accepts, resource: { url: seller, description: 'Tides' } }
    const headers = { 'payment-required': encodePaymentHeader(required) }
    replies.set('/v2', { status: 402, headers })
    const other = { ...acceptsOf('base', '1'), network: 'solana:5eykt4UsFv8P8NJdTREpY1vzqKqZKvdp' }
    const unpayable = { x402Version: 2, accepts: [other], resource: { url: seller } }
    replies.set('/solana', { status: 402, headers: { 'payment-required': encodePaymentHeader(unpayable) } })
  })

  test('prints the price on each network, the payee, and that `buy` would pay this price', async () => {
    const before = requests
    expect(await price('/v2', [], { NETWORK: 'base' })).toEqual({
      status: 0,
      stderr: '',
      found: {
        url: `${seller}/v2`,
        paid: true,
        seller: 'x402',
        description: 'Tides',
        offers: [
          { network: 'base', testnet: false, payTo, amount_usdc: '0.050000' },
          { network: 'base-sepolia', testnet: true, payTo, amount_usdc: '0.020000' },
        ],
        fee_usdc: null,
        gatewayUrl: null,
        providerId: null,
        endpointId: null,
        tab: null,
        buy: { network: 'base', max_usdc: '0.10', pays: true, reason: null },
      },
    })
    // The command sends one request, without a payment.
    expect(requests).toBe(before + 1)
    const { stdout } = await cli.run(['price', `${seller}/v2`], { NETWORK: 'base' })
    expect(stdout).toContain(
      'costs 0.050000 USDC on base (real money), or 0.020000 USDC on base-sepolia (testnet funds',
    )
    expect(stdout).toContain(`Next: \`NETWORK=base tollkeeper buy ${seller}/v2\``)
  })

  test('exits with 1 if `buy` would not pay because of the limit, another network, or a token other than USDC', async () => {
    const refused = async (path: string, args: string[], network: string) => {
      const { status, found } = await price(path, args, { NETWORK: network })
      return [status, found.buy.pays, found.buy.reason]
    }
    expect(await refused('/v2', ['--max', '0.049999'], 'base')).toEqual([
      1,
      false,
      'it costs more than --max',
    ])
    expect(await refused('/v2', ['--max', '0.05'], 'base')).toEqual([0, true, null])
    expect(await refused('/v2', [], 'polygon')).toEqual([
      1,
      false,
      expect.stringMatching(/^it isn't paid on polygon/),
    ])
    expect(await refused('/solana', [], 'base')).toEqual([
      1,
      false,
      expect.stringMatching(/^it doesn't accept USDC/),
    ])
  })
})

test('prints the price and the network of an x402 v1 seller', async () => {
  const { amount, ...accepts } = acceptsOf('base', '10000')
  const v1 = {
    ...accepts,
    network: 'base',
    maxAmountRequired: amount,
    resource: seller,
    description: 'Tides',
  }
  replies.set('/v1', { status: 402, body: { x402Version: 1, accepts: [v1], error: 'pay' } })
  expect(await price('/v1', [], { NETWORK: 'base' })).toMatchObject({
    status: 0,
    found: { seller: 'x402', offers: [{ network: 'base', amount_usdc: '0.010000' }] },
  })
})

test('prints the total, fee, provider and tab of a Tollkeeper seller, and why `buy` would not pay for another gateway or another origin', async () => {
  const { app, served } = cli.gateway
  const shop = await openShop(app)
  const endpoint = {
    url: `${seller}/own`,
    method: 'GET',
    pricing: { usdcPerUnit: '0.02' },
    walletId: shop.walletId,
  }
  const at = `/providers/${shop.providerId}/endpoints`
  const { body } = await call<{ endpointId: string }>(app, 'POST', at, { json: endpoint, key: shop.key })
  for (const [path, endpointId] of [
    ['/own', body.endpointId],
    ['/elsewhere', shop.endpointId],
  ] as const) {
    const challenge = await call(app, 'POST', '/challenge', {
      json: { providerId: shop.providerId, endpointId },
    })
    replies.set(path, { status: 402, body: challenge.body })
  }
  const env = { NETWORK: 'localhost', USDC_ADDRESS: served.token, GATEWAY_URL: 'https://gateway.example' }
  expect(await price('/own', [], env)).toMatchObject({
    status: 0,
    found: {
      seller: 'tollkeeper',
      offers: [{ network: 'localhost', testnet: true, amount_usdc: '0.020000', payTo: shop.wallet }],
      fee_usdc: '0.001000',
      gatewayUrl: 'https://gateway.example',
      providerId: shop.providerId,
      endpointId: body.endpointId,
      tab: { isOnly: false, offeredUntil: expect.any(Number) },
    },
  })
  const foreign = await price('/own', [], { ...env, GATEWAY_URL: 'https://another.example' })
  expect([foreign.status, foreign.found.buy.reason]).toEqual([
    1,
    expect.stringContaining('GATEWAY_URL=https://gateway.example'),
  ])
  const elsewhere = await price('/elsewhere', [], env)
  expect([elsewhere.status, elsewhere.found.buy.reason]).toEqual([
    1,
    expect.stringMatching(/the challenge is for https:\/\/shop/),
  ])
})

test('exits with 3 and not_paid if the URL costs nothing', async () => {
  replies.set('/free', { status: 200 })
  expect(await price('/free')).toEqual({
    status: 3,
    stderr: '',
    found: { url: `${seller}/free`, paid: false, code: 'not_paid', status: 200 },
  })
  const missing = await cli.run(['price', `${seller}/missing`])
  expect([missing.status, missing.stdout]).toEqual([3, ''])
  expect(missing.stderr).toMatch(
    /HTTP 404 for GET and requested no payment \(not_paid\)\nIf that is unexpected, check the URL/,
  )
})

test('rejects an unreadable 402, and a seller that does not answer', async () => {
  replies.set('/odd', { status: 402, body: { pay: 'me' } })
  const odd = await price('/odd')
  expect([odd.status, odd.stderr]).toEqual([2, expect.stringMatching(/\(unknown_price\)\n$/)])
  const gone = await cli.run(['price', 'http://127.0.0.1:9/'])
  expect([gone.status, gone.stderr]).toEqual([
    2,
    expect.stringMatching(/^tollkeeper: <url>: .*\(seller_unreachable\)\n$/),
  ])
})
