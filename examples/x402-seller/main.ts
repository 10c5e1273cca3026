/**
 * An x402 seller as in x402's own examples. Only the facilitator's URL and the API key are different.
 *
 * Reads PAY_TO, PROVIDER_API_KEY, PROVIDER_PORT, FACILITATOR_URL and X402_NETWORK.
 */
import { serve } from '@hono/node-server'
import { HTTPFacilitatorClient } from '@x402/core/server'
import { ExactEvmScheme } from '@x402/evm/exact/server'
import { paymentMiddleware, x402ResourceServer } from '@x402/hono'
import { Hono } from 'hono'

const { FACILITATOR_URL, PROVIDER_API_KEY, PAY_TO, X402_NETWORK, PROVIDER_PORT } = process.env
if (!PAY_TO) throw new Error('PAY_TO: expected the address that receives payments, but it is not set')

const headers = { Authorization: `Bearer ${PROVIDER_API_KEY}` }
const facilitator = new HTTPFacilitatorClient({
  url: FACILITATOR_URL || 'http://127.0.0.1:4021',
  createAuthHeaders: async () => ({ verify: headers, settle: headers, supported: headers }),
})

const network = (X402_NETWORK || 'eip155:84532') as `${string}:${string}`
const routes = {
  'GET /weather': {
    accepts: { scheme: 'exact', price: '$0.01', network, payTo: PAY_TO },
    description: 'The weather',
  },
}

const app = new Hono()
app.use(
  paymentMiddleware(routes, new x402ResourceServer(facilitator).register(network, new ExactEvmScheme())),
)
app.get('/weather', (c) => c.json({ weather: 'sunny' }))

const server = serve(
  { fetch: app.fetch, hostname: '127.0.0.1', port: Number(PROVIDER_PORT || 4030) },
  ({ port }) => console.log(`selling http://127.0.0.1:${port}/weather`),
)
for (const signal of ['SIGINT', 'SIGTERM'] as const) {
  process.once(signal, () => server.close(() => process.exit(0)))
}
