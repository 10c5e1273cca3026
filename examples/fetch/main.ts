/**
 * The same weather API as a plain handler, which Next.js, Bun, Deno and Workers run as it is; here Node serves it.
 *
 * Reads PROVIDER_ID, PROVIDER_API_KEY, PROVIDER_PORT, PRICE_USDC and GATEWAY_URL.
 */
import { serve } from '@hono/node-server'
import { requirePayment } from '@tollkeeper/sdk/fetch'

const { GATEWAY_URL, PROVIDER_ID, PROVIDER_API_KEY, PROVIDER_PORT, PRICE_USDC } = process.env
if (!PROVIDER_ID)
  throw new Error('PROVIDER_ID: expected the id that POST /providers answered, but it is not set')

const paid = requirePayment({
  gatewayUrl: GATEWAY_URL || 'http://127.0.0.1:4020',
  providerId: PROVIDER_ID,
  pricing: { usdcPerUnit: PRICE_USDC || '0.01' },
  ...(PROVIDER_API_KEY && { apiKey: PROVIDER_API_KEY }),
})

// As in app/forecast/route.ts of Next.js: export { GET }.
const GET = paid((_request, { paymentId }) =>
  Response.json({ city: 'Lisbon', celsius: 19, sky: 'clear', paymentId }),
)

// Only Node needs what follows.
const server = serve(
  {
    fetch: (request) =>
      new URL(request.url).pathname === '/forecast' ? GET(request) : new Response(null, { status: 404 }),
    hostname: '127.0.0.1',
    port: Number(PROVIDER_PORT || 4030),
  },
  ({ port }) => console.log(`selling http://127.0.0.1:${port}/forecast`),
)
for (const signal of ['SIGINT', 'SIGTERM'] as const) {
  process.once(signal, () => server.close(() => process.exit(0)))
}
