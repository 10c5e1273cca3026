import { beforeAll, describe, expect, test } from 'vitest'
import { pay, type Shop, settleDirectly } from '../../../test/support/gateway.ts'
import { useGateway, useShop } from '../../../test/support/useGateway.ts'
import { collect } from '../../test/collect.ts'
import { createProviderClient, type ProviderClient, registerProvider } from './createProviderClient.ts'

// Tests the client with a real gateway, a database and a chain.

const gateway = useGateway()
const shop = useShop(gateway)
const gatewayUrl = 'https://gateway.example'
/** Calls the gateway in this process. */
const here: typeof globalThis.fetch = async (input, init) => gateway.app.request(String(input), init)
const clientOf = ({ providerId, key }: Pick<Shop, 'providerId' | 'key'>) =>
  createProviderClient({ gatewayUrl, providerId, apiKey: key, fetch: here })

let client: ProviderClient
beforeAll(() => {
  client = clientOf(shop)
})

test('registers a provider, and the endpoints that it sells', async () => {
  const { providerId, apiKey } = await registerProvider({ gatewayUrl, fetch: here }, { name: 'Tides' })
  const own = createProviderClient({ gatewayUrl, providerId, apiKey, fetch: here })
  expect(own.providerId).toBe(providerId)
  const { walletId } = await own.wallets.create({ network: 'localhost', address: `0x${'a1'.repeat(20)}` })
  const { endpointId } = await own.endpoints.create({
    url: 'https://tides.example/today',
    pricing: { usdcPerUnit: '0.05' },
    walletId,
  })
  expect(await collect(own.endpoints.list())).toMatchObject([{ endpointId, version: 1 }])
  expect(await own.wallets.get(walletId)).toMatchObject({ walletId, network: 'localhost' })
  expect(await own.account.get()).toMatchObject({ providerId, scope: 'full' })
  const { keyId, apiKey: readOnly } = await own.apiKeys.create({ scope: 'read' })
  const reader = createProviderClient({ gatewayUrl, providerId, apiKey: readOnly, fetch: here })
  expect(await reader.provider.get()).toMatchObject({ name: 'Tides' })
  await expect(reader.provider.update({ name: 'Other' }, { ifMatch: '*' })).rejects.toMatchObject({
    code: 'forbidden',
    status: 403,
  })
  await own.apiKeys.revoke(keyId)
  const keys = await collect(own.apiKeys.list())
  expect(keys.find((one) => one.keyId === keyId)).toMatchObject({ revokedAt: expect.any(String) })
})

test('changes an endpoint only if its version has not changed since it was read', async () => {
  const { endpointId, version } = await client.endpoints.get(shop.endpointId)
  const changed = await client.endpoints.update(
    endpointId,
    { pricing: { usdcPerUnit: '0.06' } },
    { ifMatch: version },
  )
  expect(changed.version).toBe(version + 1)
  await expect(
    client.endpoints.update(endpointId, { pricing: { usdcPerUnit: '0.07' } }, { ifMatch: version }),
  ).rejects.toMatchObject({ code: 'precondition_failed', details: { version: version + 1 } })
  await client.endpoints.update(endpointId, { pricing: { usdcPerUnit: '0.05' } }, { ifMatch: '*' })
  const changes = await collect(client.provider.changes({ limit: 1 }))
  expect(changes.slice(0, 2)).toMatchObject([
    { before: { version: version + 1 }, after: { pricing: { usdcPerUnit: '0.050000' } } },
    { before: { version }, after: { pricing: { usdcPerUnit: '0.060000' } } },
  ])
})

test.each([
  [
    'the id of another provider',
    (own: Shop) => ({ ...own, providerId: `prov_${'0'.repeat(32)}` }),
    'forbidden',
  ],
  ['a wrong key', (own: Shop) => ({ ...own, key: `tk_${'0'.repeat(32)}` }), 'unauthorized'],
])('the gateway rejects a client with %s', async (_, change, code) => {
  await expect(clientOf(change(shop)).payments.totals()).rejects.toMatchObject({ code })
})

test('the error names the field that the gateway rejected', async () => {
  const call = client.endpoints.create({ url: 'https://a.example/b', pricing: { usdcPerUnit: '0.1234567' } })
  await expect(call).rejects.toMatchObject({ status: 422 })
  const wrong = client.payments.list({ limit: 0 }).page()
  await expect(wrong).rejects.toMatchObject({ fields: [{ field: 'limit' }] })
})

describe('payments', () => {
  const ids: string[] = []

  beforeAll(async () => {
    for (let number = 0; number < 3; number++) ids.unshift((await pay(gateway, shop)).paymentId)
  })

  test('reads a list page by page', async () => {
    const payments = client.payments.list({ limit: 1, testnet: true })
    expect((await collect(payments)).map(({ paymentId }) => paymentId)).toEqual(ids)
    const first = await payments.page()
    expect([first.payments.length, typeof first.cursor]).toEqual([1, 'string'])
    const second = await payments.page(first.cursor)
    expect(second.payments[0]?.paymentId).toBe(ids[1])
    expect(await collect(client.payments.list({ status: 'settled' }))).toEqual([])
  })

  test('reads a payment, its timeline, and the sums of all payments', async () => {
    const [paymentId = ''] = ids
    expect(await client.payments.get(paymentId)).toMatchObject({ payment_status: 'verified' })
    expect(await client.payments.timeline(paymentId)).toMatchObject({ paymentId })
    expect(await client.payments.totals({ from: new Date(0) })).toMatchObject({ totals: [{ payments: 3 }] })
    expect(await collect(client.revenue.list({ interval: 'total', testnet: true }))).toMatchObject([
      { payments: 3, gross_usdc: '0.150000' },
    ])
  })

  test('reads the same payments as CSV', async () => {
    const response = await client.payments.csv({ testnet: true })
    const [header = '', ...lines] = (await response.text()).trim().split('\r\n')
    const column = header.split(',').indexOf('payment_id')
    expect(lines.map((line) => line.split(',')[column])).toEqual(ids)
  })

  test('reads receipts line by line', async () => {
    // A receipt is listed only when no older receipt can be added anymore.
    gateway.setNow(Date.now() + 20_000)
    const lines = await collect(client.receipts.list())
    expect(lines.map(({ paymentId }) => paymentId)).toEqual(ids.toReversed())
    expect(lines.every(({ receipt }) => receipt?.split('.').length === 3)).toBe(true)
    const [first] = lines
    expect(await collect(client.receipts.list({ cursor: first?.cursor }))).toHaveLength(2)
    expect(await client.receipts.get(ids[0] ?? '')).toMatchObject({ paymentId: ids[0] })
  })

  test('voids a payment, and reads the number and nonce of another payment’s next refund', async () => {
    const { paymentId } = await pay(gateway, shop)
    expect(await client.payments.void(paymentId)).toMatchObject({ payment_status: 'voided' })
    await expect(client.refunds.create(paymentId, { payload: 'junk' })).rejects.toMatchObject({
      code: 'invalid_payload',
    })
    const { payloads, paymentId: settled } = await pay(gateway, shop)
    for (const payload of payloads) await settleDirectly(gateway, payload)
    const { next } = await client.refunds.get(settled)
    expect(next).toMatchObject({ number: 1, nonce: expect.stringMatching(/^0x/) })
  })

  test('reads every other kind of list and report', async () => {
    expect(await client.attention.get()).toMatchObject({ withheld: [] })
    expect(await client.queue.get()).toBeTypeOf('object')
    expect(await collect(client.payers.list({ testnet: true, limit: 2 }))).not.toEqual([])
    expect(await collect(client.payments.failures())).toEqual([])
    expect(await collect(client.tabs.list())).toEqual([])
    expect(await collect(client.splitters.list())).toEqual([])
    expect(await collect(client.batches.list())).toEqual([])
    expect(await collect(client.endpoints.activity({ testnet: true }))).toMatchObject([
      { endpointId: shop.endpointId },
    ])
    expect(await client.settlements.status({ wallet: shop.wallet })).toMatchObject({
      payment_count: expect.any(Number),
    })
    expect(await client.networks.get()).toMatchObject({
      networks: expect.arrayContaining([expect.objectContaining({ network: 'localhost', status: 'served' })]),
    })
    expect(await client.books.statement({ month: '2026-11' })).toMatchObject({ month: '2026-11' })
    expect(await collect(client.discovery.resources({ limit: 1 }))).toEqual(expect.any(Array))
    expect(await client.discovery.documents()).toBeTypeOf('object')
  })
})

test('registers a webhook, lists it and rotates its secret', async () => {
  const { webhookId, secret } = await client.webhooks.create({
    url: 'http://127.0.0.1:9/',
    events: ['tab.closed'],
  })
  expect(secret).toMatch(/^whsec_/)
  expect(await collect(client.webhooks.list())).toMatchObject([{ webhookId, events: ['tab.closed'] }])
  expect((await client.webhooks.rotateSecret(webhookId)).secret).not.toBe(secret)
  expect(await collect(client.webhooks.deliveries(webhookId))).toEqual([])
  await client.webhooks.delete(webhookId)
  await expect(client.webhooks.get(webhookId)).rejects.toMatchObject({ code: 'unknown_webhook', status: 404 })
})

test('sets an upstream and removes it', async () => {
  const { secret } = await client.upstream.set({ url: 'http://127.0.0.1:9' })
  expect(secret).toBeTypeOf('string')
  expect(await client.upstream.get()).toMatchObject({ url: expect.stringContaining('127.0.0.1') })
  await client.upstream.remove()
  await expect(client.upstream.get()).rejects.toMatchObject({ code: 'unknown_upstream' })
})

test('calls a route for which the client has no method', async () => {
  expect(await client.request<{ status: string }>({ method: 'GET', path: '/healthz' })).toBeTypeOf('object')
})

test.each([
  ['providerId', { providerId: '', apiKey: 'tk_1' }],
  ['apiKey', { providerId: 'prov_1', apiKey: undefined }],
])('createProviderClient throws without %s', (name, options) => {
  expect(() => createProviderClient({ gatewayUrl, ...options })).toThrow(name)
})
