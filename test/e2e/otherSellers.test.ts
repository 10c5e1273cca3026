import type { Server } from 'node:http'
import { createAdaptorServer } from '@hono/node-server'
import { createClient } from '@tollkeeper/sdk/client/createClient'
import { wrapFetch } from '@tollkeeper/sdk/client/wrapFetch'
import { HTTPFacilitatorClient } from '@x402/core/server'
import { ExactEvmScheme } from '@x402/evm/exact/server'
import { paymentMiddleware, x402ResourceServer } from '@x402/hono'
import { Hono, type MiddlewareHandler } from 'hono'
import type { Hex, PrivateKeyAccount } from 'viem'
import { describe, expect, test } from 'vitest'
import { listen, urlOf } from '../../sdk/test/serve.ts'
import { useFacilitator } from '../support/facilitator.ts'
import { randomHex } from '../support/usdc.ts'

// Our client with sellers that use x402's own middleware, unmodified, and a facilitator that settles real
// USDC on a real chain.

const { stack, keeper } = useFacilitator()
const price = 10_000n
const oneUsdc = 1_000_000n

async function serveApp(app: Pick<Hono, 'fetch'>): Promise<string> {
  const server = createAdaptorServer({ fetch: app.fetch }) as Server
  await listen(server)
  return urlOf(server)
}

/** Opens a seller of `/tides` that counts the requests that it serves. @param before runs before the seller's middleware. */
async function openSeller(before: MiddlewareHandler = (_, next) => next()) {
  const { network, token } = stack.served
  const headers = { Authorization: `Bearer ${stack.apiKey}` }
  const facilitator = new HTTPFacilitatorClient({
    url: await serveApp(keeper.app),
    createAuthHeaders: async () => ({ verify: headers, settle: headers, supported: headers }),
  })
  const payTo = randomHex(20)
  const accepts = {
    scheme: 'exact',
    network: network.caip2,
    payTo,
    price: { asset: token, amount: `${price}`, extra: network.eip712 },
  }
  const resourceServer = new x402ResourceServer(facilitator).register(network.caip2, new ExactEvmScheme())
  let served = 0
  const app = new Hono()
  app.use(before)
  app.use(paymentMiddleware({ 'GET /tides': { accepts, description: 'Tides' } }, resourceServer))
  app.get('/tides', (c) => {
    served++
    return c.json({ tide: 'low' })
  })
  return { url: `${await serveApp(app)}/tides`, payTo, served: () => served }
}

const optionsOf = (account: PrivateKeyAccount) => ({
  gatewayUrl: 'https://gateway.example',
  network: 'localhost' as const,
  usdcAddress: stack.served.token,
  account,
  limits: { perPayment: '0.01' },
  otherSellers: true,
})

describe('a seller with x402’s own middleware', () => {
  test('default: sells to createClient, which returns the seller’s report, and to wrapFetch', async () => {
    const seller = await openSeller()
    const buyer = await stack.buyer(oneUsdc)
    const { data, sellerReport } = await createClient(optionsOf(buyer)).request(seller.url)
    expect(data).toEqual({ tide: 'low' })
    expect(sellerReport).toEqual({ success: true, transaction: expect.stringMatching(/^0x[0-9a-f]{64}$/) })
    const hash = sellerReport?.transaction as Hex
    expect((await stack.served.client.getTransactionReceipt({ hash })).status).toBe('success')
    expect((await wrapFetch(fetch, optionsOf(buyer))(seller.url)).status).toBe(200)
    expect(seller.served()).toBe(2)
    expect(await stack.balanceOf(buyer.address)).toBe(oneUsdc - 2n * price)
    expect(await stack.balanceOf(seller.payTo)).toBe(2n * price)
  })

  test('error: rejects a wallet without money, and accepts the same payment once the wallet is funded', async () => {
    const seller = await openSeller()
    const buyer = await stack.buyer(0n)
    const client = createClient(optionsOf(buyer))
    await expect(client.request(seller.url)).rejects.toMatchObject({
      code: 'payment_refused',
      outcome: 'unknown',
      sellerReport: { reason: expect.stringContaining('insufficient') },
    })
    await stack.chain.mintUsdc([buyer.address], oneUsdc)
    expect((await client.request(seller.url)).data).toEqual({ tide: 'low' })
    expect(await stack.balanceOf(buyer.address)).toBe(oneUsdc - price)
  })

  test.each<[string, MiddlewareHandler]>([
    [
      'settles but its answers are lost',
      async (c, next) => {
        await next()
        if (c.req.header('payment-signature')) c.res = new Response(null, { status: 502 })
      },
    ],
    [
      'settles and then asks for another payment, with another price and payee',
      async (c, next) => {
        await next()
        if (!c.req.header('payment-signature')) return
        const { network, token } = stack.served
        const other = { scheme: 'exact', network: network.caip2, asset: token, amount: '9000' }
        const accepts = [{ ...other, payTo: randomHex(20), maxTimeoutSeconds: 300, extra: network.eip712 }]
        const required = btoa(JSON.stringify({ x402Version: 2, accepts }))
        c.res = new Response('{}', { status: 402, headers: { 'payment-required': required } })
      },
    ],
  ])(
    'behavior: if the seller %s, the client pays only once, even if it requests the resource several times',
    async (_, before) => {
      const seller = await openSeller(before)
      const buyer = await stack.buyer(oneUsdc)
      const client = createClient(optionsOf(buyer))
      const paying = wrapFetch(fetch, optionsOf(await stack.buyer(oneUsdc)))
      for (let count = 0; count < 3; count++) {
        await expect(client.request(seller.url)).rejects.toMatchObject({ outcome: 'unknown' })
        expect((await paying(seller.url)).ok).toBe(false)
      }
      // Each buyer paid once.
      expect(await stack.balanceOf(buyer.address)).toBe(oneUsdc - price)
      expect(await stack.balanceOf(seller.payTo)).toBe(2n * price)
    },
  )
})
