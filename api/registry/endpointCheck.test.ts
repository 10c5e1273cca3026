import { maxTimeoutSeconds } from '@tollkeeper/sdk/protocol/challenge'
import { encodePayload } from '@tollkeeper/sdk/protocol/payload'
import { describe, expect, onTestFinished, test } from 'vitest'
import { call, openShop, type Shop, sign } from '../../test/support/gateway.ts'
import { badSellers, goodSeller, type SellerKind, startSeller } from '../../test/support/sellers.ts'
import { validFor } from '../../test/support/usdc.ts'
import { useGateway } from '../../test/support/useGateway.ts'

// A provider asks why an endpoint isn't listed and has it checked immediately; the listing follows the endpoint's own 402.

const gateway = useGateway()

type Found = {
  endpoint: {
    proof: Record<string, unknown> | null
    listing: { status: string; reasons: { code: string }[] }
  }
  findings: { code: string; advice: string | null }[]
}

async function open(kind: SellerKind) {
  const shop = await openShop(gateway.app)
  const seller = await startSeller(kind, {
    network: gateway.served.network.caip2,
    asset: gateway.served.token,
    payTo: shop.wallet,
  })
  onTestFinished(seller.close)
  const endpointId = await add(shop, { url: `${seller.url}/today`, method: 'GET' })
  return { shop, endpointId }
}
async function add({ providerId, key, walletId }: Shop, json: object): Promise<string> {
  const { body } = await call<{ endpointId: string }>(
    gateway.app,
    'POST',
    `/providers/${providerId}/endpoints`,
    {
      key,
      json: { pricing: { usdcPerUnit: '0.05' }, walletId, ...json },
    },
  )
  return body.endpointId
}
const at = ({ providerId }: Shop, endpointId: string) => `/providers/${providerId}/endpoints/${endpointId}`
const check = (shop: Shop, endpointId: string, app = gateway.another()) =>
  call<Found & { code?: string }>(app, 'POST', `${at(shop, endpointId)}/check`, { key: shop.key })
const read = async (shop: Shop, endpointId: string) =>
  (await call<Found['endpoint']>(gateway.another(), 'GET', at(shop, endpointId), { key: shop.key })).body

describe('POST /providers/{id}/endpoints/{endpointId}/check', () => {
  test('proves an endpoint immediately', async () => {
    const { shop, endpointId } = await open(goodSeller({ offer: { amount: '50000' } }))
    expect(await read(shop, endpointId)).toMatchObject({
      proof: { status: 'unasked' },
      listing: { status: 'not_listed', reasons: [{ code: 'not_yet' }] },
    })
    await gateway.database`update endpoint set created_at = created_at - interval '1 minute' where id = ${endpointId}`
    expect(await read(shop, endpointId)).toMatchObject({ listing: { status: 'listed' } })
    const { status, body } = await check(shop, endpointId)
    expect([status, body.endpoint]).toMatchObject([
      200,
      {
        proof: { status: 'proven', code: null, advice: null, asked_usdc: '0.050000' },
        listing: { status: 'listed' },
      },
    ])
    expect(body.findings.map(({ code }) => code)).toContain('browsers_can_pay')
  })

  test('stores the fault with its code and advice', async () => {
    const { shop, endpointId } = await open(badSellers.serves_unpaid)
    const { body } = await check(shop, endpointId)
    const wrong = {
      status: 'unproven',
      code: 'serves_unpaid',
      finding: 'It answered 200 to a request without a payment, expected 402.',
      advice: 'Put the middleware in front of this route, for this method.',
    }
    expect(body).toMatchObject({ endpoint: { proof: wrong }, findings: [{ code: 'serves_unpaid' }] })
    const list = await call<{ endpoints: Found['endpoint'][] }>(
      gateway.app,
      'GET',
      `/providers/${shop.providerId}/endpoints`,
      { key: shop.key },
    )
    expect(list.body.endpoints.at(-1)).toMatchObject({ proof: wrong })
  })

  test('reports a 402 that asks for payments to other wallets', async () => {
    const { shop, endpointId } = await open(goodSeller({ offer: { payTo: `0x${'ee'.repeat(20)}` } }))
    const { body } = await check(shop, endpointId)
    expect(body.endpoint.proof).toMatchObject({ status: 'unproven', code: 'pays_others' })
    expect(body.findings.at(-1)?.code).toBe('pays_others')
  })

  test('sends no request for tools and for URLs that the gateway serves itself', async () => {
    const { shop } = await open(goodSeller())
    const tool = await add(shop, { url: 'mcp://tool/tides' })
    expect((await check(shop, tool)).body).toMatchObject({
      endpoint: { proof: null },
      findings: [{ code: 'tool' }],
    })
    await call(gateway.app, 'PUT', `/providers/${shop.providerId}/upstream`, {
      key: shop.key,
      json: { url: 'http://127.0.0.1:1' },
    })
    const served = await add(shop, { url: '/served', method: 'GET' })
    expect((await check(shop, served)).body).toMatchObject({
      endpoint: { proof: { status: 'proven' } },
      findings: [{ code: 'served_here' }],
    })
  })

  test('does not count tools, which get no request, towards the limit of a shared host', async () => {
    const rateLimits = { challenge: 1e6, verify: 1e6, register: 1e6, other: 1e6, payer: 1e6, keyFactor: 10 }
    gateway.setNow(Date.now() + 120_000)
    const app = gateway.another({ rateLimits })
    const { shop } = await open(goodSeller())
    const tool = await add(shop, { url: 'mcp://tool/many' })
    const statuses = new Set<number>()
    for (let n = 0; n < 25; n++) statuses.add((await check(shop, tool, app)).status)
    expect([...statuses]).toEqual([200])
  })

  test('only the endpoint’s provider can check it, at most ten times a minute', async () => {
    const { shop, endpointId } = await open(goodSeller())
    const stranger = await openShop(gateway.app)
    expect(
      (await call(gateway.app, 'POST', `${at(shop, endpointId)}/check`, { key: stranger.key })).body,
    ).toMatchObject({ code: 'forbidden' })
    expect((await check(shop, 'ep_00000000000000000000000000')).body).toMatchObject({
      code: 'unknown_endpoint',
    })
    gateway.setNow(Date.now())
    const rateLimits = { challenge: 1e6, verify: 1e6, register: 1e6, other: 1e6, payer: 1e6, keyFactor: 10 }
    const app = gateway.another({ rateLimits })
    const statuses: number[] = []
    for (let n = 0; n < 11; n++) statuses.push((await check(shop, endpointId, app)).status)
    expect(statuses).toEqual([...Array<number>(10).fill(200), 429])
  })
})

describe('an endpoint that is not listed', () => {
  test.each([
    ['endpoint_unlisted', { listed: false }, ''],
    ['endpoint_disabled', { disabled: true }, ''],
    ['provider_unlisted', { listed: false }, 'provider'],
    ['provider_disabled', { disabled: true }, 'provider'],
  ])('has the reason %s', async (code, json, of) => {
    const { shop, endpointId } = await open(goodSeller())
    await call(gateway.app, 'PATCH', of === '' ? at(shop, endpointId) : `/providers/${shop.providerId}`, {
      key: shop.key,
      headers: { 'if-match': '*' },
      json,
    })
    expect((await read(shop, endpointId)).listing).toMatchObject({
      status: 'not_listed',
      reasons: [{ code, message: expect.any(String), advice: expect.any(String) }],
    })
  })

  test('has the reason provider_suspended or catalog_off, or no_room if its wallet already has a hundred listings without payments', async () => {
    const { shop, endpointId } = await open(goodSeller())
    const off = await call<Found['endpoint']>(
      gateway.another({ discovery: false }),
      'GET',
      at(shop, endpointId),
      {
        key: shop.key,
      },
    )
    expect(off.body.listing.reasons).toMatchObject([{ code: 'catalog_off' }])
    await gateway.database`
      insert into endpoint (id, provider_id, wallet_id, chain_id, testnet, method, url, host, path, shape, price, description, mime_type,
        listed, created_at, updated_at)
      select 'ep_' || lpad(n::text, length(id) - 3, '0'), provider_id, wallet_id, chain_id, testnet, method, url || n, host, path || n, shape || n, price, '', '', true,
        now() - interval '1 hour', now() - interval '1 hour'
      from endpoint, generate_series(1, 100) n where id = ${endpointId}`
    expect((await read(shop, endpointId)).listing.reasons).toMatchObject([{ code: 'not_yet' }])
    await gateway.database`update endpoint set updated_at = now() - interval '1 minute' where id = ${endpointId}`
    expect((await read(shop, endpointId)).listing.reasons).toMatchObject([{ code: 'no_room' }])
    await gateway.database`update provider set suspended_at = now() where id = ${shop.providerId}`
    expect((await read(shop, endpointId)).listing.reasons).toMatchObject([{ code: 'provider_suspended' }])
  })
})

describe('a price in the 402 that differs from the registered one', () => {
  const priceInCatalogue = async (endpointId: string) => {
    const { body } = await call<{ items: { accepts: { amount: string }[]; resource: string }[] }>(
      gateway.another(),
      'GET',
      '/discovery/resources?limit=100',
    )
    const [row] = await gateway.database<{ url: string }[]>`select url from endpoint where id = ${endpointId}`
    return body.items.find(({ resource }) => resource === row?.url)?.accepts[0]?.amount
  }

  test('is shown in the catalog once the URL is proven, and causes a warning', async () => {
    const { shop, endpointId } = await open(goodSeller({ offer: { amount: '70000' } }))
    expect(await priceInCatalogue(endpointId)).toBe('50000')
    const { body } = await check(shop, endpointId)
    expect(body.endpoint.proof).toMatchObject({ status: 'proven', asked_usdc: '0.070000' })
    expect(body.findings.at(-1)).toMatchObject({
      code: 'price_differs',
      message: 'Its 402 asks for 0.070000 USDC, and 0.050000 is registered.',
    })
    expect(await priceInCatalogue(endpointId)).toBe('70000')
  })

  test('is not shown if the 402 asks for payments to a wallet that is not the provider’s', async () => {
    const { shop, endpointId } = await open(
      goodSeller({ offer: { amount: '1', payTo: `0x${'ee'.repeat(20)}` } }),
    )
    await check(shop, endpointId)
    expect(await priceInCatalogue(endpointId)).toBe('50000')
  })

  test('makes the gateway check the URL again within two minutes of the last check, once a payment reveals the price', async () => {
    let amount = '50000'
    const { shop, endpointId } = await open(
      (terms, url) => (request, response) => goodSeller({ offer: { amount } })(terms, url)(request, response),
    )
    await check(shop, endpointId)
    const dueIn = async () => {
      const [row] = await gateway.database<{ seconds: number }[]>`
        select extract(epoch from next_check_at - checked_at)::float8 as seconds from endpoint_proof where endpoint_id = ${endpointId}`
      return row?.seconds ?? 0
    }
    await buy(shop, endpointId, '0.05')
    expect(await dueIn()).toBeGreaterThan(86_000)
    amount = '70000'
    await buy(shop, endpointId, '0.07')
    await expect.poll(dueIn).toBeCloseTo(120, 0)
    await gateway.database`update endpoint_proof set next_check_at = now() where endpoint_id = ${endpointId}`
    await check(shop, endpointId)
    expect(await priceInCatalogue(endpointId)).toBe('70000')
  })

  /** Buys at the price that the provider's middleware requests. */
  async function buy({ providerId, key }: Shop, endpointId: string, usdcPerUnit: string): Promise<void> {
    const json = { providerId, endpointId, pricing: { usdcPerUnit } }
    const { body: challenge } = await call(gateway.app, 'POST', '/challenge', { json, key })
    const payer = await gateway.buyer(1_000_000n)
    const halves = await Promise.all(
      ([0, 1] as const).map((half) =>
        sign(gateway.served, payer, challenge as never, half, validFor(maxTimeoutSeconds)),
      ),
    )
    const payloads = halves.map((half) => encodePayload(half))
    const { macaroon } = challenge
    const { status } = await call(gateway.app, 'POST', '/verify', {
      json: { macaroon, payloads, providerId, endpointId },
    })
    expect(status).toBe(200)
  }
})
