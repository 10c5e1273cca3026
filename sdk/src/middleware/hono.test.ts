import { Hono } from 'hono'
import { expect, test } from 'vitest'
import { decodeReceipt } from '../protocol/receipt.ts'
import { type PaymentVariables, requirePayment } from './hono.ts'

const options = {
  gatewayUrl: 'https://gateway.example',
  providerId: `prov_${'1'.repeat(32)}`,
  pricing: { usdcPerUnit: 0.05 },
  mockPayments: true,
}
const paid = { headers: { authorization: 'x402 mock:mock' } }

function createApp() {
  const app = new Hono<{ Variables: PaymentVariables }>()
  app.use(requirePayment(options))
  app.get('/weather', (c) => c.json({ sunny: true, payment: c.get('payment') }))
  app.get('/cached', (c) => c.text('for all', 200, { 'Cache-Control': 'public, max-age=60, s-maxage=600' }))
  app.get('/secret', (c) => c.text('for one', 200, { 'Cache-Control': 'no-store' }))
  app.get('/throws', () => {
    throw new Error('no weather')
  })
  app.get('/unavailable', (c) => c.text('later', 503))
  app.get('/wrong', (c) => c.text('no such city', 404))
  return app.onError((_, c) => c.text('failed', 500))
}

test('default', async () => {
  const response = await createApp().request('/weather', paid)
  const receipt = response.headers.get('service-receipt') ?? ''
  const { paymentId } = decodeReceipt(receipt) ?? {}
  expect(response.status).toBe(200)
  expect(await response.json()).toEqual({ sunny: true, payment: { verified: true, receipt, paymentId } })
  expect(response.headers.get('service-payment-id')).toBe(paymentId)
  expect(response.headers.get('service-payment-status')).toBe('verified')
})

test.each([
  ['/weather', 'private'],
  ['/cached', 'private, max-age=60'],
  ['/secret', 'no-store'],
])('behavior: no shared cache may keep %s', async (path, cacheControl) => {
  const { headers } = await createApp().request(path, paid)
  expect(headers.get('cache-control')).toBe(cacheControl)
})

test('behavior: 402 with a challenge', async () => {
  const response = await createApp().request('https://api.example/weather?city=1')
  expect(response.status).toBe(402)
  expect(response.headers.get('content-type')).toBe('application/json')
  expect(await response.json()).toMatchObject({
    x402Version: 1,
    providerId: options.providerId,
    accepts: [{ resource: 'https://api.example/weather?city=1' }, {}],
  })
})

test.each([
  ['/throws', 500],
  ['/unavailable', 503],
])('behavior: %s voids the payment and carries no receipt', async (path, status) => {
  const response = await createApp().request(path, paid)
  expect(response.status).toBe(status)
  expect(response.headers.get('service-receipt')).toBeNull()
  expect(response.headers.get('service-payment-status')).toBe('voided')
  expect(response.headers.get('service-payment-id')).toMatch(/^pay_/)
})

test('behavior: the caller’s own mistake is paid for', async () => {
  const response = await createApp().request('/wrong', paid)
  expect(response.status).toBe(404)
  expect(response.headers.get('service-receipt')).not.toBeNull()
})

test('error: mock credentials where mock mode is off are not served', async () => {
  const app = new Hono().get(
    '/weather',
    requirePayment({ ...options, mockPayments: false, gatewayUrl: 'http://127.0.0.1:1' }),
    (c) => c.text('served'),
  )
  const response = await app.request('/weather', paid)
  expect(response.status).toBe(503)
  expect(await response.text()).not.toContain('served')
})
