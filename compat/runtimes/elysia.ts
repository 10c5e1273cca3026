/** A shop in Elysia on Bun, with the middleware for `fetch` handlers. */
import { requirePayment } from '@tollkeeper/sdk/fetch'
import { Elysia } from 'elysia'

declare const Bun: {
  env: Record<'GATEWAY_URL' | 'PROVIDER_ID' | 'PROVIDER_API_KEY' | 'PORT' | 'MOCK', string>
}

const { env } = Bun
const paid = requirePayment({
  gatewayUrl: env.GATEWAY_URL,
  providerId: env.PROVIDER_ID,
  apiKey: env.PROVIDER_API_KEY,
  pricing: { usdcPerUnit: '0.01' },
  mockPayments: env.MOCK === '1',
  timeout: 60_000,
})
let served = 0
const weather = paid((_request, { paymentId }) => {
  served++
  return Response.json({ celsius: 19, paymentId })
})
const reports = paid(async (request, { paymentId }) =>
  Response.json({ body: await request.json(), paymentId }),
)
const failing = paid((_request, { paymentId }) => Response.json({ paymentId }, { status: 500 }))

const app = new Elysia()
  .get('/weather/:city', ({ request }) => weather(request))
  // Otherwise Elysia would read the body before the middleware and the handler do.
  .post('/reports', ({ request }) => reports(request), { parse: 'none' })
  .get('/failing', ({ request }) => failing(request))
  .get('/served', () => ({ served }))
  .listen({ port: Number(env.PORT), hostname: '127.0.0.1' })
console.log(`selling http://127.0.0.1:${app.server?.port}`)
