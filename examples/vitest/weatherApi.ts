/** A paid API, as a function of its environment, so that a test can start it. */
import { type PaymentVariables, requirePayment } from '@tollkeeper/sdk/hono'
import { Hono } from 'hono'

export function createWeatherApi(env: Record<string, string>): Hono<{ Variables: PaymentVariables }> {
  const paid = requirePayment({
    gatewayUrl: env.GATEWAY_URL as string,
    providerId: env.PROVIDER_ID as string,
    apiKey: env.PROVIDER_API_KEY,
    pricing: { usdcPerUnit: '0.01' },
  })
  const app = new Hono<{ Variables: PaymentVariables }>()
  app.get('/forecast', paid, (c) => c.json({ celsius: 19 }))
  app.get('/broken', paid, () => {
    throw new Error('no weather today')
  })
  app.onError((_, c) => c.text('failed', 500))
  return app
}
