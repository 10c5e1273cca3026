import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import { Webhook as Verifier } from 'standardwebhooks'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { createLogger } from '#process/log'
import { call, openShop, type Shop, startGateway, type TestGateway } from '../../test/support/gateway.ts'
import { createAddressGuard } from '../portal/webhooks/addressGuard.ts'
import { createDeliveryLoop, type DeliveryLoop } from '../portal/webhooks/deliveryLoop.ts'

let gateway: TestGateway
let loop: DeliveryLoop
let shop: Shop
let at: string

beforeAll(async () => {
  gateway = await startGateway()
  loop = createDeliveryLoop({
    sql: gateway.database,
    guard: createAddressGuard({ allowPrivate: true }),
    log: createLogger('test', 'silent'),
  })
  shop = await openShop(gateway.app)
  at = `/providers/${shop.providerId}/webhooks`
})
afterAll(async () => {
  await loop?.close()
  await gateway?.close()
})

type Registered = { webhookId: string; secret: string; url: string }
type Log = { deliveries: { deliveryId: string; status: string; messageId: string }[]; cursor: string | null }

const register = (json: unknown, app = gateway.app) =>
  call<Registered>(app, 'POST', at, { json, key: shop.key })

test('default: registered, told, looked up, told again, removed', async () => {
  const received: { body: string; headers: Record<string, string> }[] = []
  const server = createServer(async (request, response) => {
    let body = ''
    for await (const chunk of request) body += chunk
    received.push({ body, headers: request.headers as Record<string, string> })
    response.writeHead(204).end()
  })
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
  try {
    const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}/hook`
    const { status, body } = await register({ url, events: ['settlement.failed'], description: 'mine' })
    expect({ status, body }).toEqual({
      status: 201,
      body: {
        webhookId: expect.stringMatching(/^wh_[0-9a-f]{32}$/),
        providerId: shop.providerId,
        url,
        description: 'mine',
        events: ['settlement.failed'],
        createdAt: expect.any(String),
        disabledAt: null,
        previousSecretExpiresAt: null,
        secret: expect.stringMatching(/^whsec_/),
      },
    })
    const { webhookId, secret } = body
    const { secret: _, ...shown } = body
    expect((await call(gateway.app, 'GET', at, { key: shop.key })).body).toEqual({ webhooks: [shown] })
    expect((await call(gateway.app, 'GET', `${at}/${webhookId}`, { key: shop.key })).body).toEqual(shown)

    for (let i = 0; i < 3; i++) {
      await gateway.database`
        insert into outbox (event, provider_id, data) values ('settlement.failed', ${shop.providerId}, '{}')`
    }
    expect(await loop.deliverDue()).toBe(3)
    for (const { body, headers } of received) expect(new Verifier(secret).verify(body, headers)).toBeDefined()

    const log = await call<Log>(gateway.app, 'GET', `${at}/${webhookId}/deliveries?limit=2`, {
      key: shop.key,
    })
    expect(log.body.deliveries).toHaveLength(2)
    expect(log.body.deliveries[0]).toMatchObject({
      status: 'delivered',
      attempts: [{ attempt: 1, httpStatus: 204 }],
    })
    const rest = await call<Log>(
      gateway.app,
      'GET',
      `${at}/${webhookId}/deliveries?limit=2&cursor=${log.body.cursor}`,
      { key: shop.key },
    )
    expect(rest.body).toMatchObject({ deliveries: [{ status: 'delivered' }], cursor: null })
    const ids = [...log.body.deliveries, ...rest.body.deliveries].map(({ deliveryId }) => deliveryId)
    expect(new Set(ids).size).toBe(3)

    const again = await call(gateway.app, 'POST', `${at}/${webhookId}/deliveries/${ids[0]}/redeliver`, {
      key: shop.key,
    })
    expect(again.status).toBe(202)
    expect(await loop.deliverDue()).toBe(1)
    expect(received[3]?.headers['webhook-id']).toBe(log.body.deliveries[0]?.messageId)

    const rotated = await call<Registered>(gateway.app, 'POST', `${at}/${webhookId}/rotate`, {
      key: shop.key,
    })
    expect(rotated.body).toMatchObject({ webhookId, previousSecretExpiresAt: expect.any(String) })
    expect(rotated.body.secret).not.toBe(secret)

    expect((await call(gateway.app, 'DELETE', `${at}/${webhookId}`, { key: shop.key })).status).toBe(204)
    expect((await call(gateway.app, 'GET', `${at}/${webhookId}`, { key: shop.key })).status).toBe(404)
    expect((await call(gateway.app, 'DELETE', `${at}/${webhookId}`, { key: shop.key })).body).toMatchObject({
      code: 'unknown_webhook',
    })
  } finally {
    server.closeAllConnections()
    server.close()
  }
})

test.each([
  ['no URL', 'nonsense'],
  ['http', 'http://93.184.215.14/'],
  ['a private address', 'https://10.0.0.1/'],
  ['IPv6 loopback', 'https://[::1]/'],
  ['the metadata address', 'https://169.254.169.254/latest/meta-data'],
  ['a name for loopback', 'https://localhost/'],
])('error: %s is refused', async (_, url) => {
  const app = gateway.another({ webhookAllowPrivate: false })
  expect((await register({ url }, app)).body).toMatchObject({ status: 422, code: 'webhook_url_refused' })
})

test.each([
  ['unknown event', { url: 'https://127.0.0.1/', events: ['payment.refunded'] }],
  ['no events', { url: 'https://127.0.0.1/', events: [] }],
  ['no url', {}],
])('error: %s', async (_, json) => {
  const { status } = await register(json)
  expect([400, 422]).toContain(status)
})

test('error: too many', async () => {
  const other = await openShop(gateway.app)
  const create = () =>
    call(gateway.app, 'POST', `/providers/${other.providerId}/webhooks`, {
      json: { url: 'https://127.0.0.1/' },
      key: other.key,
    })
  for (let i = 0; i < 20; i++) expect((await create()).status).toBe(201)
  expect((await create()).body).toMatchObject({ status: 422, code: 'webhook_limit_reached' })
})

test("error: another provider's key, or none", async () => {
  const { body } = await register({ url: 'https://127.0.0.1/' })
  const other = await openShop(gateway.app)
  const paths: [string, string][] = [
    ['GET', at],
    ['POST', at],
    ['GET', `${at}/${body.webhookId}`],
    ['DELETE', `${at}/${body.webhookId}`],
    ['POST', `${at}/${body.webhookId}/rotate`],
    ['GET', `${at}/${body.webhookId}/deliveries`],
    ['POST', `${at}/${body.webhookId}/deliveries/whd_${'0'.repeat(32)}/redeliver`],
  ]
  for (const [method, path] of paths) {
    const options = method === 'POST' ? { json: { url: 'https://127.0.0.1/' } } : {}
    expect((await call(gateway.app, method, path, { ...options, key: other.key })).status, path).toBe(403)
    expect((await call(gateway.app, method, path, options)).status, path).toBe(401)
    // Nor under its own name.
    const mine = path.replace(shop.providerId, other.providerId)
    if (mine.includes(body.webhookId)) {
      expect((await call(gateway.app, method, mine, { ...options, key: other.key })).status, mine).toBe(404)
    }
  }
})

test('error: a cursor that is none', async () => {
  const { body } = await register({ url: 'https://127.0.0.1/' })
  for (const cursor of ['x', 'bnVsbA', Buffer.from('["other",1,"a"]').toString('base64url')]) {
    const path = `${at}/${body.webhookId}/deliveries?cursor=${cursor}`
    expect((await call(gateway.app, 'GET', path, { key: shop.key })).body).toMatchObject({
      code: 'invalid_cursor',
    })
  }
})
