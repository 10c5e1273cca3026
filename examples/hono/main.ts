/**
 * A weather API that charges for its forecast. Only twelve of its lines deal with payments.
 *
 * Reads PROVIDER_ID, PROVIDER_API_KEY, PROVIDER_PORT, PRICE_USDC, GATEWAY_URL and MOCK_PAYMENTS.
 */
import { serve } from '@hono/node-server'
import { type PaymentVariables, requirePayment } from '@tollkeeper/sdk/hono'
import { Hono } from 'hono'

const { GATEWAY_URL, PROVIDER_ID, PROVIDER_API_KEY, PROVIDER_PORT, PRICE_USDC, MOCK_PAYMENTS } = process.env
const paid = requirePayment({
  gatewayUrl: GATEWAY_URL || 'http://127.0.0.1:4020',
  providerId: PROVIDER_ID || '',
  apiKey: PROVIDER_API_KEY || undefined,
  pricing: { usdcPerUnit: PRICE_USDC || '0.01' },
  mockPayments: MOCK_PAYMENTS === 'true',
})

const app = new Hono<{ Variables: PaymentVariables }>()

app.get('/', (c) => c.json({ name: 'Sample weather API', paid: ['/forecast'] }))

app.get('/forecast', paid, (c) => {
  const { paymentId } = c.get('payment')
  return c.json({ city: 'Lisbon', celsius: 19, sky: 'clear', paymentId })
})

const server = serve(
  { fetch: app.fetch, hostname: '127.0.0.1', port: Number(PROVIDER_PORT || 4030) },
  ({ port }) => console.log(`selling http://127.0.0.1:${port}/forecast`),
)
for (const signal of ['SIGINT', 'SIGTERM'] as const) {
  process.once(signal, () => server.close(() => process.exit(0)))
}
