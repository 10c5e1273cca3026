import { once } from 'node:events'
import type { AddressInfo } from 'node:net'
import { serve } from '@hono/node-server'
import type { Keeper } from '@tollkeeper/keeper/keeper'
import { halves } from '@tollkeeper/ledger/facts/halves'
import { createClient } from '@tollkeeper/sdk/client/createClient'
import { wrapFetch } from '@tollkeeper/sdk/client/wrapFetch'
import { x402Client as axiosClient, wrapAxiosWithPayment } from '@x402/axios'
import { HTTPFacilitatorClient } from '@x402/core/server'
import { ExactEvmScheme } from '@x402/evm'
import { ExactEvmScheme as ExactEvmServer } from '@x402/evm/exact/server'
import * as expressX402 from '@x402/express'
import { decodePaymentResponseHeader, wrapFetchWithPayment, x402Client } from '@x402/fetch'
import * as honoX402 from '@x402/hono'
import axios from 'axios'
import express from 'express'
import { Hono } from 'hono'
import { createWalletClient, getAddress, type Hex, http, type PrivateKeyAccount } from 'viem'
import { baseSepolia } from 'viem/chains'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { wrapFetchWithPayment as wrapFetchV1 } from 'x402-fetch'
import { paymentMiddleware as honoV1 } from 'x402-hono'
import { startLocalChain } from '../apps/devstack/chain/startLocalChain.ts'
import { type KeeperStack, startKeeperStack } from '../test/support/keeperStack.ts'
import { randomHex } from '../test/support/usdc.ts'

// Third-party sellers and buyers, unmodified, from npm. Each seller changes one URL, and its buyers need no change. Our client buys from these
// sellers as well. The chain simulates Base Sepolia, because a local chain can use no other chain ID that version 1 supports.

const price = '$0.01'
const payTo = getAddress(randomHex(20))

let stack: KeeperStack
let keeper: Keeper
let facilitator: string
const closing: (() => void)[] = []

beforeAll(async () => {
  const chain = await startLocalChain({ network: 'base-sepolia', blockTimeMs: 0 })
  stack = await startKeeperStack({}, { chain })
  closing.push(() => void chain.close())
  keeper = stack.keeper()
  keeper.start()
  facilitator = await listen(keeper.app)
})
afterAll(async () => {
  await keeper?.stop()
  await stack?.close()
  for (const close of closing) close()
})

async function listen(app: Pick<Hono, 'fetch'>): Promise<string> {
  const server = serve({ fetch: app.fetch, port: 0, hostname: '127.0.0.1' })
  await once(server, 'listening')
  closing.push(() => server.close())
  return `http://127.0.0.1:${(server.address() as AddressInfo).port}`
}

const auth = async () => {
  const headers = { Authorization: `Bearer ${stack.apiKey}` }
  return { verify: headers, settle: headers, supported: headers }
}

/** A seller, and the number of times that its handler ran. */
type Seller = { url: string; served: () => number }

const routes = {
  'GET /weather': {
    accepts: { scheme: 'exact', price, network: 'eip155:84532', payTo },
    description: 'The weather',
  },
} as const

function resourceServer() {
  const client = new HTTPFacilitatorClient({ url: facilitator, createAuthHeaders: auth })
  return new honoX402.x402ResourceServer(client).register('eip155:84532', new ExactEvmServer())
}

async function honoSeller(sold: Parameters<typeof honoX402.paymentMiddleware>[0]): Promise<Seller> {
  let served = 0
  const app = new Hono()
  app.use(honoX402.paymentMiddleware(sold, resourceServer()))
  app.get('/weather', (c) => {
    served++
    return c.json({ weather: 'sunny' })
  })
  return { url: await listen(app), served: () => served }
}

const sellers: Record<string, () => Promise<Seller>> = {
  '@x402/hono': () => honoSeller(routes),
  async '@x402/express'() {
    let served = 0
    const app = express()
    app.use(expressX402.paymentMiddleware(routes, resourceServer()))
    app.get('/weather', (_, response) => {
      served++
      response.json({ weather: 'sunny' })
    })
    const server = app.listen(0, '127.0.0.1')
    await once(server, 'listening')
    closing.push(() => server.close())
    return { url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`, served: () => served }
  },
  async 'x402-hono'() {
    let served = 0
    const app = new Hono()
    app.use(
      honoV1(
        payTo,
        { 'GET /weather': { price, network: 'base-sepolia' } },
        {
          url: facilitator as `http://${string}`,
          createAuthHeaders: auth,
        },
      ),
    )
    app.get('/weather', (c) => {
      served++
      return c.json({ weather: 'sunny' })
    })
    return { url: await listen(app), served: () => served }
  },
}

type Bought = { weather: unknown; response: string }

/** Our buyers. Our gateway takes no part in these purchases. */
const ourBuyers: Record<string, (account: PrivateKeyAccount, url: string) => Promise<Bought>> = {
  async createClient(account, url) {
    const { data, headers, sellerReport, payment } = await createClient(ourOptions(account)).request(url)
    const response = headers.get('payment-response') ?? headers.get('x-payment-response') ?? ''
    const { success, transaction } = decodePaymentResponseHeader(response)
    expect(sellerReport).toEqual({ success, transaction })
    expect(payment).toMatchObject({ amount: 10_000n, header: {} })
    return { weather: data, response }
  },
  async wrapFetch(account, url) {
    const answer = await wrapFetch(fetch, ourOptions(account))(url)
    const response = answer.headers.get('payment-response') ?? answer.headers.get('x-payment-response') ?? ''
    return { weather: await answer.json(), response }
  },
}

const ourOptions = (account: PrivateKeyAccount) => ({
  gatewayUrl: 'https://gateway.example',
  network: 'base-sepolia' as const,
  usdcAddress: stack.served.token,
  account,
  limits: { perPayment: '0.01' },
  otherSellers: true,
})

const clientV2 = (buyer: PrivateKeyAccount) =>
  new x402Client().register('eip155:84532', new ExactEvmScheme(buyer)).setSpendControls(false)

const buyersV2: typeof ourBuyers = {
  ...ourBuyers,
  async '@x402/fetch'(buyer, url) {
    const answer = await wrapFetchWithPayment(fetch, clientV2(buyer))(url)
    return { weather: await answer.json(), response: answer.headers.get('PAYMENT-RESPONSE') ?? '' }
  },
  async '@x402/axios'(buyer, url) {
    const answer = await wrapAxiosWithPayment(
      axios.create(),
      new axiosClient().register('eip155:84532', new ExactEvmScheme(buyer)),
    ).get(url)
    return { weather: answer.data, response: String(answer.headers['payment-response'] ?? '') }
  },
}

const buyersV1: typeof ourBuyers = {
  ...ourBuyers,
  async 'x402-fetch'(buyer, url) {
    const wallet = createWalletClient({
      account: buyer,
      chain: baseSepolia,
      transport: http(stack.chain.url),
    })
    const answer = await wrapFetchV1(fetch, wallet as never)(url)
    return { weather: await answer.json(), response: answer.headers.get('X-PAYMENT-RESPONSE') ?? '' }
  },
}

async function expectSettled(response: string, payer: PrivateKeyAccount): Promise<Hex> {
  const settled = decodePaymentResponseHeader(response)
  expect(settled.success).toBe(true)
  const hash = settled.transaction as Hex
  const [row] = await stack.database<[{ source: string; txHash: Hex }]>`
    select p.source, h.tx_hash as "txHash" from payment p
    join ${halves(stack.database)} h on h.payment_id = p.id
    where p.payer = ${payer.address.toLowerCase()} and h.state = 'settled'`
  expect(row).toEqual({ source: 'facilitator', txHash: hash })
  return hash
}

describe.each(['@x402/hono', '@x402/express'])('%s', (name) => {
  let seller: Seller
  beforeAll(async () => {
    seller = await (sellers[name] as () => Promise<Seller>)()
  })

  test.each(Object.keys(buyersV2))('default: sells to %s', async (client) => {
    const buyer = await stack.buyer()
    const before = seller.served()
    const bought = await buyersV2[client]?.(buyer, `${seller.url}/weather`)
    expect(bought?.weather).toEqual({ weather: 'sunny' })
    await expectSettled(bought?.response ?? '', buyer)
    expect(seller.served() - before).toBe(1)
    expect(await stack.balanceOf(buyer.address)).toBe(990_000n)
  })

  test('behavior: runs the handler once if the header of one payment arrives ten times at once', async () => {
    const buyer = await stack.buyer()
    const { header } = await catchHeader(buyer, `${seller.url}/weather`)
    const before = seller.served()
    const answers = await Promise.all(
      Array.from({ length: 10 }, () =>
        fetch(`${seller.url}/weather`, { headers: { 'PAYMENT-SIGNATURE': header } }),
      ),
    )
    expect(answers.filter(({ status }) => status === 200)).toHaveLength(1)
    expect(seller.served() - before).toBe(1)
    expect(await stack.balanceOf(buyer.address)).toBe(990_000n)
  })

  test('behavior: runs the handler once if ten payments arrive at once but the balance covers only one', async () => {
    const buyer = await stack.buyer(10_000n)
    const headers = await Promise.all(
      Array.from({ length: 10 }, () => catchHeader(buyer, `${seller.url}/weather`)),
    )
    const before = seller.served()
    await Promise.all(
      headers.map(({ header }) =>
        fetch(`${seller.url}/weather`, { headers: { 'PAYMENT-SIGNATURE': header } }),
      ),
    )
    expect(seller.served() - before).toBe(1)
  })
})

describe('@x402/hono that settles before it serves', () => {
  test.each([undefined, 'order_0123456789abcdef'])(
    'behavior: serves a payment only once if it is presented 40 times, with the payment-identifier %s',
    async (id) => {
      const accepts = { ...routes['GET /weather'].accepts, extra: { paymentFlow: 'upfront' } }
      const seller = await honoSeller({ 'GET /weather': { ...routes['GET /weather'], accepts } })
      const buyer = await stack.buyer()
      const { header } = await catchHeader(buyer, `${seller.url}/weather`)
      const payload = JSON.parse(Buffer.from(header, 'base64').toString())
      const extensions = id === undefined ? {} : { 'payment-identifier': { info: { id } } }
      const presented = Buffer.from(JSON.stringify({ ...payload, extensions })).toString('base64')
      const present = () => fetch(`${seller.url}/weather`, { headers: { 'PAYMENT-SIGNATURE': presented } })
      const answers = await Promise.all(Array.from({ length: 20 }, present))
      for (let i = 0; i < 20; i++) answers.push(await present())
      expect(answers.filter(({ status }) => status === 200)).toHaveLength(1)
      expect(seller.served()).toBe(1)
      expect(await stack.balanceOf(buyer.address)).toBe(990_000n)
    },
  )
})

describe('x402-hono', () => {
  test.each(Object.keys(buyersV1))('default: sells to %s', async (client) => {
    const seller = await (sellers['x402-hono'] as () => Promise<Seller>)()
    const buyer = await stack.buyer()
    const bought = await buyersV1[client]?.(buyer, `${seller.url}/weather`)
    expect(bought?.weather).toEqual({ weather: 'sunny' })
    await expectSettled(bought?.response ?? '', buyer)
    expect(seller.served()).toBe(1)
  })
})

/** Returns the header with which a client would pay. */
async function catchHeader(buyer: PrivateKeyAccount, url: string): Promise<{ header: string }> {
  let header = ''
  const paying = wrapFetchWithPayment(async (input, init) => {
    const request = new Request(input, init)
    header = request.headers.get('PAYMENT-SIGNATURE') ?? ''
    return header === '' ? fetch(request) : new Response('{}')
  }, clientV2(buyer))
  await paying(url)
  return { header }
}
