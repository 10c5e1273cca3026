/**
 * The weather API of examples/hono, with Fastify.
 *
 * Reads PROVIDER_ID, PROVIDER_API_KEY, PROVIDER_PORT, PRICE_USDC and GATEWAY_URL.
 */
import { type PaidRequest, requirePayment } from '@tollkeeper/sdk/fastify'
import fastify from 'fastify'

const { GATEWAY_URL, PROVIDER_ID, PROVIDER_API_KEY, PROVIDER_PORT, PRICE_USDC } = process.env
const paid = requirePayment({
  gatewayUrl: GATEWAY_URL || 'http://127.0.0.1:4020',
  providerId: PROVIDER_ID || '',
  apiKey: PROVIDER_API_KEY || undefined,
  pricing: { usdcPerUnit: PRICE_USDC || '0.01' },
})

const app = fastify()
app.get('/forecast', { preHandler: paid }, async (request) => {
  const { paymentId } = (request as typeof request & PaidRequest).payment
  return { city: 'Lisbon', celsius: 19, sky: 'clear', paymentId }
})

const port = Number(PROVIDER_PORT || 4030)
await app.listen({ port, host: '127.0.0.1' })
console.log(`selling http://127.0.0.1:${port}/forecast`)
for (const signal of ['SIGINT', 'SIGTERM'] as const) {
  process.once(signal, () => void app.close().then(() => process.exit(0)))
}
