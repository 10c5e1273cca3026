import { Webhook as Verifier } from 'standardwebhooks'
import { expect, test } from 'vitest'
import { call, openShop } from '../../test/support/gateway.ts'
import { useGateway, useShop } from '../../test/support/useGateway.ts'
import { startWebhookReceiver } from '../../test/support/webhookReceiver.ts'

const gateway = useGateway()
const shop = useShop(gateway)

type Webhook = { webhookId: string; secret: string; disabledAt: string | null }

const at = () => `/providers/${shop.providerId}/webhooks`
const ask = <T>(method: string, path: string, json?: unknown) =>
  call<T>(gateway.app, method, path, { key: shop.key, ...(json !== undefined && { json }) })
const register = async (url: string) => (await ask<Webhook>('POST', at(), { url })).body
const sendTest = (webhookId: string) => ask<Record<string, unknown>>('POST', `${at()}/${webhookId}/test`)

test('a test of a webhook sends a signed event immediately and returns the answer of the webhook’s URL', async () => {
  await using receiver = await startWebhookReceiver()
  const { webhookId, secret } = await register(receiver.url)
  const { status, body } = await sendTest(webhookId)
  expect([status, body]).toEqual([200, { delivered: true, status: 204, durationMs: expect.any(Number) }])
  const [message] = receiver.received
  const sent = new Verifier(secret).verify(message?.body ?? '', message?.headers as Record<string, string>)
  expect(sent).toMatchObject({ type: 'webhook.test', data: { webhookId, paymentId: null, txHash: null } })
})

test('a test event is signed with both secrets during a rotation', async () => {
  await using receiver = await startWebhookReceiver()
  const { webhookId, secret } = await register(receiver.url)
  const rotated = (await ask<Webhook>('POST', `${at()}/${webhookId}/rotate`)).body
  await sendTest(webhookId)
  const [message] = receiver.received
  for (const each of [secret, rotated.secret])
    expect(
      new Verifier(each).verify(message?.body ?? '', message?.headers as Record<string, string>),
    ).toBeDefined()
})

test.each([
  [500, 'http_500'],
  [302, 'redirect_refused'],
  [410, 'gone'],
])(
  'if the webhook’s URL answers a test with %i, the test returns the error, adds no delivery to the log and doesn’t disable the webhook',
  async (status, error) => {
    await using receiver = await startWebhookReceiver((response) =>
      response.writeHead(status, { location: '/elsewhere' }).end(),
    )
    const { webhookId } = await register(receiver.url)
    expect((await sendTest(webhookId)).body).toMatchObject({ delivered: false, status, error })
    expect(receiver.received).toHaveLength(1)
    expect((await ask<Webhook>('GET', `${at()}/${webhookId}`)).body.disabledAt).toBeNull()
    const log = await ask<{ deliveries: unknown[] }>('GET', `${at()}/${webhookId}/deliveries`)
    expect(log.body.deliveries).toEqual([])
    const rows = await gateway.database`select silences, paused_until from webhook where id = ${webhookId}`
    expect(rows).toEqual([{ silences: 0, paused_until: null }])
  },
)

test('a test of a webhook returns the error if nothing listens at its URL', async () => {
  const receiver = await startWebhookReceiver()
  await receiver.close()
  const { webhookId } = await register(receiver.url)
  expect((await sendTest(webhookId)).body).toMatchObject({
    delivered: false,
    status: null,
    error: expect.stringMatching(/^connection_failed: .*ECONNREFUSED/),
  })
})

test('a test of a webhook sends nothing to a private address, even if the URL was accepted at registration', async () => {
  await using receiver = await startWebhookReceiver()
  const { webhookId } = await register(receiver.url)
  const strict = gateway.another({ webhookAllowPrivate: false })
  const { body } = await call(strict, 'POST', `${at()}/${webhookId}/test`, { key: shop.key })
  expect(body).toMatchObject({
    delivered: false,
    status: null,
    error: expect.stringMatching(/^address_refused/),
  })
  expect(receiver.received).toEqual([])
})

test('a provider’s eleventh test within a minute is refused, and each provider’s tests are counted separately', async () => {
  const limits = {
    challenge: 1_000,
    verify: 1_000,
    register: 1_000,
    other: 1_000,
    payer: 1_000,
    keyFactor: 10,
  }
  const app = gateway.another({ rateLimits: limits })
  await using receiver = await startWebhookReceiver()
  const shops = [await openShop(gateway.app), await openShop(gateway.app)]
  const paths: string[] = []
  for (const { providerId, key } of shops) {
    const path = `/providers/${providerId}/webhooks`
    const { body } = await call<Webhook>(gateway.app, 'POST', path, { json: { url: receiver.url }, key })
    paths.push(`${path}/${body.webhookId}/test`)
  }
  // A new window of a minute may begin during the test, so 21 tests exceed the limits of two windows.
  const statuses: number[] = []
  for (let i = 0; i < 21; i++)
    statuses.push((await call(app, 'POST', paths[0] ?? '', { key: shops[0]?.key ?? '' })).status)
  expect(statuses.slice(0, 10)).toEqual(Array(10).fill(200))
  expect(statuses).toContain(429)
  expect((await call(app, 'POST', paths[1] ?? '', { key: shops[1]?.key ?? '' })).status).toBe(200)
})
