/**
 * Runs a seller's API on Hono. `/free` is free. With Tollkeeper's middleware, `/two` and `/one` require two signatures or one, and
 * `/settled` requires a payment that settles before it is served. With x402's middleware, `/exact` requires a payment with scheme
 * `exact`.
 *
 * Reads SELLER: a JSON object, {@link SellerSettings}.
 */
import { serve } from '@hono/node-server'
import { requirePayment } from '@tollkeeper/sdk/hono'
import { HTTPFacilitatorClient } from '@x402/core/server'
import { ExactEvmScheme } from '@x402/evm/exact/server'
import { paymentMiddleware, x402ResourceServer } from '@x402/hono'
import { Hono } from 'hono'
import type { Address } from 'viem'

export type SellerSettings =
  | { kind: 'ours'; gatewayUrl: string; providerId: string; apiKey: string; prices: Record<string, string> }
  | { kind: 'x402'; facilitatorUrl: string; apiKey?: string; payTo: Address; usdc: Address; amount: string }

const settings = JSON.parse(process.env.SELLER ?? '') as SellerSettings
const app = new Hono()
app.get('/healthz', (c) => c.text('ok'))
app.get('/free', (c) => c.json({ celsius: 19 }))
if (settings.kind === 'ours') {
  const { gatewayUrl, providerId, apiKey, prices } = settings
  for (const [path, usdcPerUnit] of Object.entries(prices)) {
    const signatures = path === '/two' ? 'two' : 'one'
    const options = { gatewayUrl, providerId, apiKey, pricing: { usdcPerUnit }, signatures } as const
    app.get(path, requirePayment({ ...options, timeout: 60_000 }), (c) => c.json({ celsius: 19 }))
  }
} else {
  const { facilitatorUrl, apiKey, payTo, usdc, amount } = settings
  const headers: Record<string, string> = apiKey === undefined ? {} : { Authorization: `Bearer ${apiKey}` }
  const facilitator = new HTTPFacilitatorClient({
    url: facilitatorUrl,
    createAuthHeaders: async () => ({ verify: headers, settle: headers, supported: headers }),
  })
  const network = 'eip155:31337'
  const price = { amount, asset: usdc, extra: { name: 'USD Coin', version: '2' } }
  const routes = {
    'GET /exact': { accepts: { scheme: 'exact', price, network, payTo }, description: 'Weather' },
  } as const
  const server = new x402ResourceServer(facilitator).register(network, new ExactEvmScheme())
  app.use('/exact', paymentMiddleware(routes, server))
  app.get('/exact', (c) => c.json({ celsius: 19 }))
}
serve({ fetch: app.fetch, port: Number(process.env.PORT), hostname: '127.0.0.1' })
