/**
 * The weather API of examples/hono, with Express.
 *
 * Reads PROVIDER_ID, PROVIDER_API_KEY, PROVIDER_PORT, PRICE_USDC and GATEWAY_URL.
 */
import { requirePayment } from '@tollkeeper/sdk/express'
import express from 'express'

const { GATEWAY_URL, PROVIDER_ID, PROVIDER_API_KEY, PROVIDER_PORT, PRICE_USDC } = process.env
const paid = requirePayment({
  gatewayUrl: GATEWAY_URL || 'http://127.0.0.1:4020',
  providerId: PROVIDER_ID || '',
  apiKey: PROVIDER_API_KEY || undefined,
  pricing: { usdcPerUnit: PRICE_USDC || '0.01' },
})

const app = express()
app.get('/forecast', paid, (_request, response) => {
  const { paymentId } = response.locals.payment
  response.json({ city: 'Lisbon', celsius: 19, sky: 'clear', paymentId })
})

const port = Number(PROVIDER_PORT || 4030)
const server = app.listen(port, '127.0.0.1', () => console.log(`selling http://127.0.0.1:${port}/forecast`))
for (const signal of ['SIGINT', 'SIGTERM'] as const) {
  process.once(signal, () => server.close(() => process.exit(0)))
}
