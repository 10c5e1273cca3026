/**
 * The weather API of examples/hono, as a route of Next.js: app/forecast/route.ts.
 *
 * Reads PROVIDER_ID, PROVIDER_API_KEY, PRICE_USDC and GATEWAY_URL. Next.js also loads this file during the build, which therefore needs PROVIDER_ID.
 */
import { requirePayment } from '@tollkeeper/sdk/fetch'

const { GATEWAY_URL, PROVIDER_ID, PROVIDER_API_KEY, PRICE_USDC } = process.env
const paid = requirePayment({
  gatewayUrl: GATEWAY_URL || 'http://127.0.0.1:4020',
  providerId: PROVIDER_ID || '',
  apiKey: PROVIDER_API_KEY || undefined,
  pricing: { usdcPerUnit: PRICE_USDC || '0.01' },
})

export const GET = paid((_request, { paymentId }) =>
  Response.json({ city: 'Lisbon', celsius: 19, sky: 'clear', paymentId }),
)
