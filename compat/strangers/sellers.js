/**
 * Runs a third-party x402 seller, unmodified, with the settings from its README and our facilitator's URL: `node sellers.js <name>`.
 * Prints the seller's URL on one line.
 */
import { createServer } from 'node:http'
import { getRequestListener } from '@hono/node-server'
import express from 'express'
import { Hono } from 'hono'

const { FACILITATOR_URL, KEYED_FACILITATOR_URL, API_KEY, PAY_TO, USDC_ADDRESS } = process.env
const url = FACILITATOR_URL
const createAuthHeaders = async () => {
  const headers = { Authorization: `Bearer ${API_KEY}` }
  return { verify: headers, settle: headers, supported: headers }
}

/** The routes of an x402 v2 seller, and its server with our facilitator. */
async function resourceServer() {
  const { HTTPFacilitatorClient, x402ResourceServer } = await import('@x402/core/server')
  const { ExactEvmScheme } = await import('@x402/evm/exact/server')
  const routes = {
    'GET /weather': {
      accepts: { scheme: 'exact', price: '$0.01', network: 'eip155:84532', payTo: PAY_TO },
      description: 'The weather',
    },
  }
  const client = new HTTPFacilitatorClient({ url, createAuthHeaders })
  return [routes, new x402ResourceServer(client).register('eip155:84532', new ExactEvmScheme())]
}

const sellers = {
  async '@x402/express'() {
    const { paymentMiddleware } = await import('@x402/express')
    return express()
      .use(paymentMiddleware(...(await resourceServer())))
      .get('/weather', (_, response) => response.json({ weather: 'sunny' }))
  },
  async '@x402/hono'() {
    const { paymentMiddleware } = await import('@x402/hono')
    return byHono(paymentMiddleware(...(await resourceServer())))
  },
  async 'x402-hono'() {
    const { paymentMiddleware } = await import('x402-hono')
    const routes = { 'GET /weather': { price: '$0.01', network: 'base-sepolia' } }
    return byHono(paymentMiddleware(PAY_TO, routes, { url, createAuthHeaders }))
  },
  async 'x402-express'() {
    const { paymentMiddleware } = await import('x402-express')
    const routes = { 'GET /weather': { price: '$0.01', network: 'base-sepolia' } }
    return byExpress(paymentMiddleware(PAY_TO, routes, { url, createAuthHeaders }))
  },
  /** This seller has no option for headers, so the key is in the URL. */
  async '@dexterai/x402'() {
    const { x402Middleware } = await import('@dexterai/x402/server')
    return byExpress(
      x402Middleware({
        payTo: PAY_TO,
        amount: '0.01',
        network: 'eip155:84532',
        facilitatorUrl: KEYED_FACILITATOR_URL,
        asset: { address: USDC_ADDRESS, decimals: 6 },
      }),
    )
  },
  /** This seller has no option for headers either, so the key is in the URL. */
  async '@faremeter/middleware'() {
    const { createMiddleware } = await import('@faremeter/middleware/express')
    const { x402Exact } = await import('@faremeter/info/evm')
    return byExpress(
      await createMiddleware({
        facilitatorURL: KEYED_FACILITATOR_URL,
        accepts: [x402Exact({ network: 'base-sepolia', asset: 'USDC', amount: 10_000, payTo: PAY_TO })],
        supportedVersions: { x402v1: true, x402v2: true },
      }),
    )
  },
  async mppx() {
    const { evm, Mppx } = await import('mppx/server')
    const mppx = Mppx.create({
      methods: [
        evm({
          currency: USDC_ADDRESS,
          recipient: PAY_TO,
          chainId: 84532,
          decimals: 6,
          authorization: { name: 'USDC', version: '2' },
          x402: { facilitator: KEYED_FACILITATOR_URL },
        }),
      ],
      secretKey: 'a secret of at least thirty-two bytes',
    })
    return getRequestListener(async (request) => {
      const response = await mppx.charge({ amount: '0.01' })(request)
      if (response.status === 402) return response.challenge
      return response.withReceipt(Response.json({ weather: 'sunny' }))
    })
  },
}

function byHono(middleware) {
  const app = new Hono().use(middleware).get('/weather', (c) => c.json({ weather: 'sunny' }))
  return getRequestListener(app.fetch)
}

function byExpress(middleware) {
  const app = express()
  app.get('/weather', middleware, (_, response) => response.json({ weather: 'sunny' }))
  return app
}

const server = createServer(await sellers[process.argv[2]]())
server.listen(0, '127.0.0.1', () => console.log(`selling http://127.0.0.1:${server.address().port}/weather`))
