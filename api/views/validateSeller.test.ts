import { listDeclaration } from '@tollkeeper/ledger/discovery/declarations'
import { createAddressGuard } from '@tollkeeper/runtime/addressGuard'
import { describe, expect, onTestFinished, test } from 'vitest'
import { call, openShop, type Shop } from '../../test/support/gateway.ts'
import { badSellers, goodSeller, type SellerKind, startSeller } from '../../test/support/sellers.ts'
import { randomHex } from '../../test/support/usdc.ts'
import { useGateway } from '../../test/support/useGateway.ts'
import { createOriginChecks } from '../registry/originChecks.ts'

const gateway = useGateway()

type Validation = {
  isListable: boolean
  isListableByX402: boolean
  httpStatus: number | null
  findings: { code: string; severity: string }[]
  offers: object[]
  listings: { status: string; isOwn: boolean; reasons: { code: string }[]; proof: Record<string, unknown> }[]
}
type Asking = { key?: string; app?: typeof gateway.app }

/** Sends the request to another process, which has nothing cached. */
const validate = (url: string, { key, app = gateway.another() }: Asking = {}, method?: string) =>
  call<Validation & { code?: string }>(app, 'POST', '/discovery/validate', {
    json: { url, ...(method && { method }) },
    ...(key && { key }),
  })
const payTo = randomHex(20)
async function start(kind: SellerKind, wallet: string = payTo) {
  const seller = await startSeller(kind, {
    network: gateway.served.network.caip2,
    asset: gateway.served.token,
    payTo: wallet,
  })
  onTestFinished(seller.close)
  return seller
}
async function register(shop: Shop, url: string, more: object = {}): Promise<string> {
  const { body } = await call<{ endpointId: string }>(
    gateway.app,
    'POST',
    `/providers/${shop.providerId}/endpoints`,
    {
      key: shop.key,
      json: { url, method: 'GET', pricing: { usdcPerUnit: '0.01' }, walletId: shop.walletId, ...more },
    },
  )
  return body.endpointId
}
async function checkAll() {
  const step = createOriginChecks({
    sql: gateway.database,
    guard: createAddressGuard({ allowPrivate: true }),
    issuer: gateway.settings.issuer,
    networks: [gateway.served],
    onBadRow: (_, error) => {
      throw error
    },
  })
  while ((await step()) === 'busy');
}
const codesOf = ({ findings }: Validation) => findings.map(({ code }) => code)

describe('any seller', () => {
  test('a correct seller can be listed by all catalogs', async () => {
    const { url } = await start(goodSeller())
    const { status, body } = await validate(`${url}/today`)
    expect([status, body]).toMatchObject([
      200,
      {
        url: `${url}/today`,
        method: 'GET',
        sent: 'GET',
        httpStatus: 402,
        isListable: true,
        isListableByX402: true,
        offers: [{ network: 'localhost', price_usdc: '0.010000', payTo, seller: payTo, form: 'x402-v2' }],
        listings: [],
      },
    ])
  })

  test.each(['serves_unpaid', 'blocked', 'redirects', 'not_usdc', 'body_cut'] as const)(
    'returns the code of the fault: %s',
    async (code) => {
      const { url } = await start(badSellers[code])
      const { body } = await validate(url)
      expect(codesOf(body)).toContain(code)
      expect(body.isListable).toBe(code === 'body_cut')
    },
  )

  test('a seller without the extension bazaar can be listed here, but not in x402 catalogs', async () => {
    const { url } = await start(badSellers.not_described)
    expect((await validate(url)).body).toMatchObject({ isListable: true, isListableByX402: false })
  })

  test('a PUT endpoint is requested with POST', async () => {
    const { url } = await start(goodSeller())
    expect((await validate(url, {}, 'PUT')).body).toMatchObject({ method: 'PUT', sent: 'POST' })
  })
})

describe('listings in the catalog', () => {
  test('shows a listed endpoint to anyone, with its proof', async () => {
    const shop = await openShop(gateway.app)
    const { url } = await start(goodSeller(), shop.wallet)
    const endpointId = await register(shop, `${url}/cities/:city`)
    expect((await validate(`${url}/cities/oslo`, { key: shop.key })).body.listings).toMatchObject([
      { status: 'not_listed', reasons: [{ code: 'not_yet' }] },
    ])
    await gateway.database`update endpoint set created_at = created_at - interval '1 minute' where id = ${endpointId}`
    const unasked = await validate(`${url}/cities/oslo`)
    expect(unasked.body.listings).toMatchObject([
      { kind: 'endpoint', endpointId, status: 'listed', isOwn: false, proof: { status: 'unasked' } },
    ])
    await checkAll()
    const { body } = await validate(`${url}/cities/oslo?a=1`)
    expect(body.listings).toMatchObject([
      { status: 'listed', reasons: [], price_usdc: '0.010000', proof: { status: 'proven', code: null } },
    ])
  })

  test('shows what is hidden, and why, only to its provider', async () => {
    const [shop, stranger] = [await openShop(gateway.app), await openShop(gateway.app)]
    const { url } = await start(goodSeller(), shop.wallet)
    const endpointId = await register(shop, url, { listed: false })
    for (const asking of [{}, { key: stranger.key }])
      expect((await validate(url, asking)).body.listings).toEqual([])
    const { body } = await validate(url, { key: shop.key })
    expect(body.listings).toMatchObject([
      { endpointId, isOwn: true, status: 'not_listed', reasons: [{ code: 'endpoint_unlisted' }] },
    ])
  })

  test('shows a declared resource, and when it is checked', async () => {
    const { url } = await start(goodSeller())
    await declare(`${url}/`, payTo)
    await checkAll()
    const { body } = await validate(url)
    expect(body.listings).toMatchObject([
      {
        kind: 'declared',
        endpointId: null,
        status: 'listed',
        proof: { status: 'proven', checkedAt: expect.any(String), nextCheckAt: expect.any(String) },
      },
    ])
  })
})

describe('a 402 that differs from the listing', () => {
  const dueOf = async (resource: string, wallet: string) => {
    const [row] = await gateway.database<{ seconds: number }[]>`
      select extract(epoch from next_check_at - checked_at)::float8 as seconds
      from declared_resource where resource = ${resource} and pay_to = ${wallet}`
    return row?.seconds ?? 0
  }

  test('moves the next check to two minutes after the last check, without other changes', async () => {
    const wallet = randomHex(20)
    let kind = goodSeller()
    const { url } = await start(
      (terms, at) =>
        (...exchange) =>
          kind(terms, at)(...exchange),
      wallet,
    )
    await declare(`${url}/`, wallet)
    await checkAll()
    expect(await dueOf(`${url}/`, wallet)).toBeGreaterThan(86_000)
    await validate(url)
    expect(await dueOf(`${url}/`, wallet)).toBeGreaterThan(86_000)
    kind = goodSeller({ offer: { amount: '20000' } })
    for (let n = 0; n < 3; n++) await validate(url)
    expect(await dueOf(`${url}/`, wallet)).toBeCloseTo(120, 0)
    const [row] = await gateway.database`select amount from declared_resource where resource = ${`${url}/`}`
    expect(row?.amount).toBe(10_000n)
  })

  test('if a stranger declared the same URL, the owner’s listing is checked again, not replaced', async () => {
    const [owner, stranger] = [randomHex(20), randomHex(20)]
    const { url } = await start(goodSeller(), owner)
    await declare(`${url}/`, owner)
    await checkAll()
    for (let n = 0; n < 3; n++) await declare(`${url}/`, stranger)
    expect(await dueOf(`${url}/`, owner)).toBeCloseTo(120, 0)
    await checkAll()
    const rows = await gateway.database`
      select pay_to, proven_at is not null as proven from declared_resource where resource = ${`${url}/`} order by id`
    expect(rows).toEqual([
      { pay_to: owner, proven: true },
      { pay_to: stranger, proven: false },
    ])
  })
})

describe('limits', () => {
  const rateLimits = { challenge: 1e6, verify: 1e6, register: 1e6, other: 1e6, payer: 1e6, keyFactor: 10 }

  test('a caller has ten probes a minute', async () => {
    const { url } = await start(goodSeller())
    gateway.setNow(Date.now())
    const app = gateway.another({ rateLimits })
    const statuses: number[] = []
    for (let n = 0; n < 11; n++) statuses.push((await validate(url, { app })).status)
    expect(statuses).toEqual([...Array<number>(10).fill(200), 429])
  })

  test('a host gets at most twenty probes a minute from all callers together', async () => {
    const { url } = await start(badSellers.not_found)
    gateway.setNow(Date.now() + 120_000)
    const app = gateway.another({ rateLimits, trustedProxies: 1 })
    const ask = (caller: number) =>
      app.request('/discovery/validate', {
        method: 'POST',
        headers: { 'content-type': 'application/json', 'x-forwarded-for': `192.0.2.${caller}` },
        body: JSON.stringify({ url }),
      })
    const statuses: number[] = []
    for (let n = 0; n < 21; n++) statuses.push((await ask(n)).status)
    expect(statuses.indexOf(429)).toBe(20)
  })

  test('an address has a limit of connections per minute, regardless of how many host names resolve to it', async () => {
    let requests = 0
    const { url } = await start((terms, at) => (request, response) => {
      requests++
      goodSeller()(terms, at)(request, response)
    })
    gateway.setNow(Date.now() + 240_000)
    const addressGuard = createAddressGuard({
      allowPrivate: true,
      resolve: async () => [{ address: '127.0.0.1', family: 4 }],
    })
    const settings = { ...gateway.settings, rateLimits, trustedProxies: 1 }
    const app = gateway.withOptions({ settings, addressGuard })
    const port = new URL(url).port
    const statuses: number[] = []
    for (let n = 0; n < 40; n++) {
      const response = await app.request('/discovery/validate', {
        method: 'POST',
        headers: { 'content-type': 'application/json', 'x-forwarded-for': `192.0.2.${n}` },
        body: JSON.stringify({ url: `http://name${n}.example:${port}/` }),
      })
      statuses.push(response.status)
    }
    expect(statuses.filter((status) => status === 200)).toHaveLength(30)
    expect(requests).toBe(120)
  })
})

test.each([
  ['no URL', { url: 'tides' }],
  ['a path', { url: '/today' }],
  ['a tool', { url: 'mcp://tool/today' }],
  ['credentials', { url: 'https://a:b@tides.example/' }],
  ['another method', { url: 'https://tides.example/', method: 'TRACE' }],
])('refuses %s', async (_, json) => {
  expect(await call(gateway.app, 'POST', '/discovery/validate', { json })).toMatchObject({ status: 422 })
})

test('answers 404 if the gateway has no catalog', async () => {
  const app = gateway.another({ discovery: false })
  expect(
    await call(app, 'POST', '/discovery/validate', { json: { url: 'https://a.example' } }),
  ).toMatchObject({
    status: 404,
    body: { code: 'not_found' },
  })
})

function declare(resource: string, wallet: string) {
  return listDeclaration(gateway.database, {
    resource,
    chainId: 31337,
    payTo: wallet as `0x${string}`,
    providerId: null,
    x402Version: 2,
    amount: 10_000n,
    maxTimeoutSeconds: 60,
    description: 'Tides',
    mimeType: '',
    bazaar: { info: { input: { type: 'http', method: 'GET' } }, schema: { type: 'object' } },
    serviceName: null,
    tags: [],
    iconUrl: null,
  })
}
