import { expect, test, vi } from 'vitest'
import { call, openShop, signedBody } from '../test/support/gateway.ts'
import { useGateway } from '../test/support/useGateway.ts'

const gateway = useGateway()
test('default: accepts a payment and returns its receipt', async () => {
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
  expect((await call(app, 'GET', '/readyz')).body).toMatchObject({ status: 'ok' })
  expect((await call(app, 'GET', '/openapi/gateway.json')).status).toBe(200)
})

test('behavior: the OpenAPI document is built once, and a client that already has the current document gets 304', async () => {
  const app = gateway.another()
  const build = vi.spyOn(app, 'getOpenAPI31Document')
  const [first, second] = [
    await app.request('/openapi/gateway.json'),
    await app.request('/openapi/gateway.json'),
  ]
  expect(await second.text()).toBe(await first.text())
  expect(build).toHaveBeenCalledTimes(1)
  const etag = first.headers.get('etag') ?? ''
  const again = await app.request('/openapi/gateway.json', { headers: { 'if-none-match': etag } })
  expect([again.status, await again.text()]).toEqual([304, ''])
  const old = await app.request('/openapi/gateway.json', { headers: { 'if-none-match': '"old"' } })
  expect([old.status, old.headers.get('content-type')]).toEqual([200, 'application/json'])
})

test('behavior: each operation of the OpenAPI document has a unique id and states its authentication', async () => {
  type Document = { paths: Record<string, Record<string, { operationId?: string; security?: object[] }>> }
  const { body } = await call<Document>(gateway.app, 'GET', '/openapi/gateway.json')
  const operations = Object.values(body.paths).flatMap((item) => Object.values(item))
  const ids = operations.map(({ operationId }) => operationId)
  expect(ids.length).toBeGreaterThan(70)
  expect(new Set(ids).size).toBe(ids.length)
  expect(ids).toEqual(
    expect.arrayContaining(['getProviderEndpoint', 'postProviderEndpoints', 'getDiscoverySearch']),
  )
  expect(operations.filter(({ security }) => !Array.isArray(security))).toEqual([])
})

test.each([
  ['GET', '/verify', 'POST'],
  ['DELETE', '/challenge', 'GET, HEAD, POST'],
  ['PUT', '/payments/pay_1/void', 'POST'],
  ['POST', '/.well-known/jwks.json', 'GET, HEAD'],
])('error: %s %s is refused with 405, and Allow lists the allowed methods', async (method, path, allow) => {
  const response = await gateway.app.request(path, { method })
  expect([response.status, response.headers.get('allow')]).toEqual([405, allow])
  expect(await response.json()).toMatchObject({ code: 'method_not_allowed' })
})

test.each([
  ['GET', '/challenge', 'no-store'],
  ['POST', '/verify', 'no-store'],
  ['POST', '/providers', 'no-store'],
  ['GET', '/receipts/pay_1', 'no-store'],
  ['GET', '/account', 'no-store'],
  ['GET', '/nowhere', 'no-store'],
  ['GET', '/readyz', 'no-store'],
  ['GET', '/metrics', 'no-store'],
  ['GET', '/network', 'public, max-age=10'],
  ['GET', '/network/batches', 'public, max-age=10'],
  ['GET', '/network/batches?limit=0', 'no-store'],
  ['GET', '/dashboard/', 'no-cache'],
  ['GET', '/openapi/gateway.json', 'no-cache'],
  ['GET', '/.well-known/jwks.json', 'public, max-age=300'],
])(
  'behavior: the answer to %s %s has Cache-Control “%s”, and forbids browsers to guess its content type',
  async (method, path, cacheControl) => {
    const { headers } = await gateway.app.request(path, { method })
    expect(headers.get('cache-control')).toBe(cacheControl)
    expect(headers.get('x-content-type-options')).toBe('nosniff')
  },
)

test('behavior: no cache may store challenges, receipts, keys and secrets', async () => {
  const { app } = gateway
  const shop = await openShop(app)
  const payer = await gateway.buyer(1_000_000n)
  const verified = await call(app, 'POST', '/verify', { json: await signedBody(gateway, shop, payer) })
  const at = `/providers/${shop.providerId}`
  const { key } = shop
  const answers = [
    verified,
    await call(app, 'GET', `/challenge?providerId=${shop.providerId}&endpointId=${shop.endpointId}`),
    await call(app, 'GET', `/receipts/${verified.body.paymentId}`),
    await call(app, 'POST', '/providers', { json: { name: 'Another' } }),
    await call(app, 'POST', `${at}/keys`, { json: {}, key }),
    await call(app, 'POST', `${at}/webhooks`, { json: { url: 'http://127.0.0.1/' }, key }),
  ]
  for (const { status, headers } of answers) {
    expect([status < 300, headers.get('cache-control')]).toEqual([true, 'no-store'])
  }
})
