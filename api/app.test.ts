import { afterAll, beforeAll, expect, test } from 'vitest'
import { call, openShop, signedBody, startGateway, type TestGateway } from '../test/support/gateway.ts'

let gateway: TestGateway
beforeAll(async () => {
  gateway = await startGateway()
})
afterAll(() => gateway.close())

test('default: a payment is accepted, its receipt read back', async () => {
  const { app } = gateway
  const shop = await openShop(app)
  const payer = await gateway.buyer(1_000_000n)
  const verified = await call(app, 'POST', '/verify', { json: await signedBody(gateway, shop, payer) })
  expect(verified.body).toMatchObject({ verified: true, paymentId: expect.stringMatching(/^pay_/) })
  const payment = await call(app, 'GET', `/payments/${verified.body.paymentId}`)
  expect(payment.body).toMatchObject({ payment_status: 'verified' })
  const receipt = await call(app, 'GET', `/receipts/${verified.body.paymentId}`)
  expect(receipt.status).toBe(200)
  const status = await call(app, 'GET', `/settlements/status?wallet=${shop.wallet}`)
  expect(status.body).toMatchObject({ accumulated_usdc: '0.047500', payment_count: 1 })
  const batches = await call(app, 'GET', `/settlements/batches?wallet=${shop.wallet}`)
  expect(batches.body).toMatchObject({ batches: [] })
  const csv = await call<string>(
    app,
    'GET',
    `/settlements/export?wallet=${shop.wallet}&start=2026-01-01&end=2026-01-02`,
  )
  expect(csv.body).toBe(
    'batch_id,payment_count,total_usdc,gas_cost_usdc,tx_hash,trigger_type,created_at,confirmed_at\r\n',
  )
  expect((await call(app, 'GET', '/readyz')).body).toMatchObject({ status: 'ready' })
  expect((await call(app, 'GET', '/openapi.json')).status).toBe(200)
})

test.each([
  ['GET', '/verify', 'POST'],
  ['DELETE', '/challenge', 'GET, HEAD, POST'],
  ['PUT', '/payments/pay_1/void', 'POST'],
  ['POST', '/.well-known/jwks.json', 'GET, HEAD'],
])('error: %s %s says what it takes', async (method, path, allow) => {
  const response = await gateway.app.request(path, { method })
  expect([response.status, response.headers.get('allow')]).toEqual([405, allow])
  expect(await response.json()).toMatchObject({ code: 'method_not_allowed' })
})
