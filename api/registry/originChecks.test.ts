import { once } from 'node:events'
import { createServer, type Server } from 'node:http'
import { text } from 'node:stream/consumers'
import type { DiscoveryResource } from '@tollkeeper/ledger/discovery/catalogue'
import { listDeclaration } from '@tollkeeper/ledger/discovery/declarations'
import { createAddressGuard } from '@tollkeeper/runtime/addressGuard'
import { encodePaymentHeader } from '@tollkeeper/sdk/protocol/x402'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { urlOf } from '../../sdk/test/serve.ts'
import { collectBadRows, noBadRows, refuseWrites } from '../../test/support/badRows.ts'
import { call, openShop, type Shop } from '../../test/support/gateway.ts'
import { randomHex } from '../../test/support/usdc.ts'
import { useGateway } from '../../test/support/useGateway.ts'
import { createOriginChecks } from './originChecks.ts'

// Anyone can register any URL with a wallet of their own, or declare it to a facilitator. Only the 402 that the URL returns proves who sells there.

const gateway = useGateway()
let shop: Shop
let server: Server
let origin: string
/** The server's answers by path. */
const answers = new Map<string, { status: number; required?: object; body?: object }>()
const asked: string[] = []
/** Bodies of the requests that the server received. */
const bodies: Promise<string>[] = []

beforeAll(async () => {
  shop = await openShop(gateway.app)
  server = createServer((request, response) => {
    asked.push(`${request.method} ${request.url}`)
    bodies.push(text(request))
    const { status, required, body } = answers.get(request.url ?? '') ?? { status: 404 }
    if (required) response.setHeader('PAYMENT-REQUIRED', encodePaymentHeader(required))
    response.writeHead(status, { 'content-type': 'application/json' }).end(JSON.stringify(body ?? {}))
  })
  await once(server.listen(0, '127.0.0.1'), 'listening')
  origin = urlOf(server)
})
afterAll(() => server?.close())

const check = (allowPrivate = true, onBadRow = noBadRows) =>
  createOriginChecks({
    onBadRow,
    sql: gateway.database,
    guard: createAddressGuard({ allowPrivate }),
    issuer: gateway.settings.issuer,
    networks: [gateway.served],
  })

/** Checks all URLs that are due. */
async function checkAll(allowPrivate?: boolean): Promise<void> {
  const step = check(allowPrivate)
  while ((await step()) === 'busy');
}

async function addEndpoint(path: string, seller = shop): Promise<string> {
  const url = `${origin}${path}`
  const { status } = await call(gateway.app, 'POST', `/providers/${seller.providerId}/endpoints`, {
    key: seller.key,
    json: { url, method: 'GET', pricing: { usdcPerUnit: '0.05' }, walletId: seller.walletId },
  })
  expect(status).toBe(201)
  return url
}

async function find(resource: string): Promise<DiscoveryResource | undefined> {
  const { body } = await call<{ items: DiscoveryResource[] }>(
    gateway.another(),
    'GET',
    '/discovery/resources?limit=100',
  )
  return body.items.find((one) => one.resource === resource)
}

const dueAgain = () => gateway.database`update endpoint_proof set next_check_at = now()`
const exact = (payTo: string, more: object = {}) => ({
  x402Version: 2,
  accepts: [
    {
      scheme: 'exact',
      network: 'eip155:31337',
      amount: '70000',
      asset: gateway.served.token,
      payTo,
      maxTimeoutSeconds: 60,
    },
  ],
  ...more,
})

describe('endpoints', () => {
  test('default: a URL that asks for payments to the wallet is proven with one request', async () => {
    answers.set('/cities/city', { status: 402, required: exact(shop.wallet) })
    const url = await addEndpoint('/cities/:city')
    expect((await find(url))?.quality.proven).toBe(false)
    asked.length = 0
    await checkAll()
    expect((await find(url))?.quality.proven).toBe(true)
    await checkAll()
    expect(asked).toEqual(['GET /cities/city'])
  })

  test('error: if a seller registers another seller’s URL on the same host, that URL is not proven', async () => {
    const [seller, neighbor] = [await openShop(gateway.app), await openShop(gateway.app)]
    answers.set('/own', { status: 402, required: exact(seller.wallet) })
    answers.set('/neighbor', { status: 402, required: exact(neighbor.wallet) })
    const [own, foreign] = [await addEndpoint('/own', seller), await addEndpoint('/neighbor', seller)]
    await checkAll()
    expect((await find(own))?.quality).toMatchObject({ proven: true, finding: null })
    expect((await find(foreign))?.quality).toMatchObject({
      proven: false,
      finding: 'Its 402 asks for payments to other wallets than the listed one.',
    })
  })

  test('error: if an endpoint’s URL or wallet is replaced, the new URL or wallet needs its own proof', async () => {
    const seller = await openShop(gateway.app)
    for (const path of ['/before', '/after'])
      answers.set(path, { status: 402, required: exact(seller.wallet) })
    const before = await addEndpoint('/before', seller)
    await checkAll()
    expect((await find(before))?.quality.proven).toBe(true)
    const path = `/providers/${seller.providerId}/endpoints`
    const { body } = await call<{ endpoints: { endpointId: string; url: string }[] }>(
      gateway.app,
      'GET',
      path,
      {
        key: seller.key,
      },
    )
    const { endpointId } = body.endpoints.find(({ url }) => url === before) ?? {}
    answers.set('/after', { status: 402, required: exact(randomHex(20)) })
    const after = `${origin}/after`
    await call(gateway.app, 'PATCH', `${path}/${endpointId}`, {
      key: seller.key,
      headers: { 'if-match': '*' },
      json: { url: after },
    })
    expect((await find(after))?.quality.proven).toBe(false)
    await gateway.database`update endpoint_proof set next_check_at = now() where endpoint_id = ${endpointId ?? ''}`
    await checkAll()
    expect((await find(after))?.quality).toMatchObject({
      proven: false,
      finding: expect.stringContaining('to other wallets'),
    })
  })

  test('behavior: reports a URL that rejects empty input, and checks it with the seller’s example once the seller is proven at another URL', async () => {
    const seller = await openShop(gateway.app)
    const example = { city: 'Oslo', days: 3 }
    answers.set('/strict?city=Oslo&days=3', { status: 402, required: exact(seller.wallet) })
    answers.set('/strict', { status: 400 })
    const path = `/providers/${seller.providerId}/endpoints`
    const endpoint = {
      url: `${origin}/strict`,
      method: 'GET',
      pricing: { usdcPerUnit: '0.05' },
      walletId: seller.walletId,
    }
    const { body } = await call<{ endpointId: string }>(gateway.app, 'POST', path, {
      key: seller.key,
      json: endpoint,
    })
    const at = `${path}/${body.endpointId}`
    const read = async () => (await call(gateway.app, 'GET', at, { key: seller.key })).body
    expect(await read()).toMatchObject({ proof: { status: 'unasked', finding: null } })
    await checkAll()
    expect(await read()).toMatchObject({
      proof: {
        status: 'unproven',
        finding: expect.stringContaining('It answered 400 to a request without a payment'),
      },
    })
    await call(gateway.app, 'PATCH', at, {
      key: seller.key,
      headers: { 'if-match': '*' },
      json: { inputExample: example },
    })
    const askAgain = async () => {
      await gateway.database`update endpoint_proof set next_check_at = now() where endpoint_id = ${body.endpointId}`
      asked.length = 0
      await checkAll()
    }
    await askAgain()
    expect(asked).toEqual(['GET /strict'])
    expect(await read()).toMatchObject({ proof: { status: 'unproven' } })
    answers.set('/open', { status: 402, required: exact(seller.wallet) })
    await addEndpoint('/open', seller)
    await checkAll()
    await askAgain()
    expect(asked).toEqual(['GET /strict', 'GET /strict?city=Oslo&days=3'])
    expect(await read()).toMatchObject({ proof: { status: 'proven', finding: null } })
  })

  test('error: a server without a proven wallet receives no text of the registrant except the URL', async () => {
    const stranger = await openShop(gateway.app)
    answers.set('/victim/transfer', { status: 422 })
    answers.set('/victim/logged', { status: 200 })
    const register = (path: string) =>
      call(gateway.app, 'POST', `/providers/${stranger.providerId}/endpoints`, {
        key: stranger.key,
        json: {
          url: `${origin}${path}`,
          method: 'POST',
          pricing: { usdcPerUnit: '0.05' },
          walletId: stranger.walletId,
          inputExample: { to: 'stranger', amount: 100 },
        },
      })
    for (const path of ['/victim/transfer', '/victim/logged']) expect((await register(path)).status).toBe(201)
    // A URL of another origin is proven to belong to the stranger.
    await gateway.database`
      update endpoint_proof set proven_at = now(), next_check_at = now() + interval '1 day', url = 'https://elsewhere.example/'
      where endpoint_id = ${stranger.endpointId}`
    await gateway.database`update endpoint set url = 'https://elsewhere.example/' where id = ${stranger.endpointId}`
    asked.length = 0
    bodies.length = 0
    await checkAll()
    expect(asked.toSorted()).toEqual(['POST /victim/logged', 'POST /victim/transfer'])
    expect(await Promise.all(bodies)).toEqual(['{}', '{}'])
  })

  test('behavior: a seller whose 402 for empty input names no wallet is checked with its example', async () => {
    const seller = await openShop(gateway.app)
    answers.set('/quote', { status: 402, body: { error: 'name a city' } })
    answers.set('/quote?city=Oslo', { status: 402, required: exact(seller.wallet) })
    const url = `${origin}/quote`
    await call(gateway.app, 'POST', `/providers/${seller.providerId}/endpoints`, {
      key: seller.key,
      json: {
        url,
        method: 'GET',
        pricing: { usdcPerUnit: '0.05' },
        walletId: seller.walletId,
        inputExample: { city: 'Oslo' },
      },
    })
    await checkAll()
    expect((await find(url))?.quality.proven).toBe(true)
  })

  test('behavior: many URLs of one provider delay no other provider, and unlisted URLs are not checked', async () => {
    const [many, one] = [await openShop(gateway.app), await openShop(gateway.app)]
    for (let n = 0; n < 12; n++) await addEndpoint(`/many/${n}`, many)
    answers.set('/one', { status: 402, required: exact(one.wallet) })
    const url = await addEndpoint('/one', one)
    await gateway.database`update endpoint set listed = false where url like ${`${origin}/many/%1`}`
    asked.length = 0
    await check()()
    expect(asked).toContain('GET /one')
    expect((await find(url))?.quality.proven).toBe(true)
    await checkAll()
    expect(asked.filter((path) => path.includes('/many/')).toSorted()).toEqual(
      [0, 2, 3, 4, 5, 6, 7, 8, 9, 10].map((n) => `GET /many/${n}`).toSorted(),
    )
  })

  test('behavior: counts an endpoint as proven if its 402 names the wallet in our own body format, or as the provider of a splitter', async () => {
    for (const answer of [
      { body: { x402Version: 1, accepts: [{ payTo: shop.wallet }] } },
      {
        required: exact(randomHex(20), {
          accepts: [{ payTo: randomHex(20), extra: { splitter: { provider: shop.wallet } } }],
        }),
      },
    ]) {
      answers.set('/cities/city', { status: 402, ...answer })
      await dueAgain()
      await checkAll()
      expect((await find(`${origin}/cities/:city`))?.quality.proven).toBe(true)
    }
  })

  test('behavior: a URL that is down for a while stays proven; a URL that now asks for payments to other wallets does not', async () => {
    const proven = async () => (await find(`${origin}/cities/:city`))?.quality.proven
    answers.set('/cities/city', { status: 500 })
    await dueAgain()
    await checkAll()
    expect(await proven()).toBe(true)
    await gateway.database`update endpoint_proof set proven_at = now() - interval '4 days'`
    await dueAgain()
    await checkAll()
    expect(await proven()).toBe(false)
    answers.set('/cities/city', { status: 402, required: exact(shop.wallet) })
    await dueAgain()
    await checkAll()
    expect(await proven()).toBe(true)
    answers.set('/cities/city', { status: 402, required: exact(randomHex(20)) })
    await dueAgain()
    await checkAll()
    expect(await proven()).toBe(false)
  })

  test.each([200, 401, 404])(
    'error: payment requirements in an answer with status %i prove nothing',
    async (status) => {
      const seller = await openShop(gateway.app)
      const path = `/status/${status}`
      const url = await addEndpoint(path, seller)
      const proven = async () => (await find(url))?.quality.proven
      answers.set(path, { status, required: exact(seller.wallet) })
      asked.length = 0
      await checkAll()
      expect(asked).toEqual([`GET ${path}`])
      expect(await proven()).toBe(false)
      answers.set(path, { status: 402, required: exact(seller.wallet) })
      await dueAgain()
      await checkAll()
      expect(await proven()).toBe(true)
    },
  )

  test('behavior: a URL that the gateway itself serves is proven without a request', async () => {
    await call(gateway.app, 'PUT', `/providers/${shop.providerId}/upstream`, {
      key: shop.key,
      json: { url: origin },
    })
    const { body } = await call<{ url: string }>(
      gateway.app,
      'POST',
      `/providers/${shop.providerId}/endpoints`,
      {
        key: shop.key,
        json: { url: '/served', method: 'GET', pricing: { usdcPerUnit: '0.05' }, walletId: shop.walletId },
      },
    )
    asked.length = 0
    await checkAll()
    expect((await find(body.url))?.quality.proven).toBe(true)
    expect(asked.filter((one) => one.includes('served'))).toEqual([])
  })

  test('error: a private address gets no request', async () => {
    await dueAgain()
    asked.length = 0
    await checkAll(false)
    expect(asked).toEqual([])
    const rows =
      await gateway.database`select finding_code as code from endpoint_proof where url like ${`${origin}/cities/%`}`
    expect(rows[0]?.code).toBe('url_refused')
  })
})

describe('declared resources', () => {
  const bazaar = (method: string) => ({
    info: { input: { type: 'http', method, bodyType: 'json', body: {} } },
    schema: { type: 'object' },
  })
  const declare = async (path: string, payTo: string, amount = 10_000n) => {
    const resource = `${origin}${path}`
    await listDeclaration(gateway.database, {
      resource,
      chainId: 31337,
      payTo: payTo as `0x${string}`,
      providerId: null,
      x402Version: 2 as const,
      amount,
      maxTimeoutSeconds: 60,
      description: 'Free money',
      mimeType: 'text/html',
      bazaar: bazaar('POST'),
      serviceName: null,
      tags: [],
      iconUrl: null,
    })
    return resource
  }

  test('behavior: the resource’s own 402 replaces what its buyer declared, and a later payment does not undo that', async () => {
    const payTo = randomHex(20)
    answers.set('/paid', {
      status: 402,
      required: exact(payTo, {
        resource: {
          url: 'https://elsewhere.example/',
          description: 'The tides',
          mimeType: 'application/json',
          serviceName: 'Tides',
        },
        extensions: { bazaar: bazaar('POST') },
      }),
    })
    const resource = await declare('/paid', payTo)
    expect(await find(resource)).toMatchObject({ description: 'Free money', quality: { proven: false } })
    asked.length = 0
    await checkAll()
    expect(asked).toEqual(['POST /paid'])
    const truth = {
      description: 'The tides',
      serviceName: 'Tides',
      accepts: [{ amount: '70000', payTo }],
      quality: { proven: true },
    }
    expect(await find(resource)).toMatchObject(truth)
    await declare('/paid', payTo)
    expect(await find(resource)).toMatchObject(truth)
  })

  test('behavior: a changed price that a payment reveals is read within minutes', async () => {
    const payTo = randomHex(20)
    answers.set('/cheaper', { status: 402, required: exact(payTo) })
    const resource = await declare('/cheaper', payTo)
    await checkAll()
    const price = async () => (await find(resource))?.accepts[0]?.amount
    expect(await price()).toBe('70000')
    const [offer] = exact(payTo).accepts
    answers.set('/cheaper', {
      status: 402,
      required: exact(payTo, { accepts: [{ ...offer, amount: '30000' }] }),
    })
    await checkAll()
    expect(await price()).toBe('70000')
    await declare('/cheaper', payTo, 30_000n)
    const [due] = await gateway.database`
      select next_check_at < now() + interval '3 minutes' as soon from declared_resource where resource = ${resource}`
    expect(due?.soon).toBe(true)
    await gateway.database`update declared_resource set checked_at = now() - interval '3 minutes' where resource = ${resource}`
    await declare('/cheaper', payTo, 30_001n)
    await checkAll()
    expect(await price()).toBe('30000')
  })

  test('behavior: the price is the one in USDC, even if the 402 offers another token first', async () => {
    const payTo = randomHex(20)
    const { token } = gateway.served
    const [offer] = exact(payTo).accepts
    const elsewhere = { ...offer, network: 'eip155:56', asset: randomHex(20), amount: '10000000000000000' }
    const required = exact(payTo, {
      accepts: [elsewhere, { ...offer, asset: randomHex(20), amount: '7' }, offer],
    })
    answers.set('/usdt', { status: 402, required })
    const resource = await declare('/usdt', payTo)
    await checkAll()
    expect(await find(resource)).toMatchObject({
      accepts: [{ amount: '70000', asset: token, payTo }],
      quality: { proven: true },
    })
  })

  test('behavior: a squatter is listed after the owner, as unproven', async () => {
    const [owner, squatter] = [randomHex(20), randomHex(20)]
    answers.set('/owned', { status: 402, required: exact(owner) })
    const resource = await declare('/owned', squatter)
    await declare('/owned', owner)
    await checkAll()
    const { body } = await call<{ items: DiscoveryResource[] }>(
      gateway.another(),
      'GET',
      '/discovery/resources?limit=100',
    )
    const both = body.items.filter((one) => one.resource === resource)
    expect(both.map(({ accepts, quality }) => [accepts[0]?.payTo, quality.proven])).toEqual([
      [owner, true],
      [squatter, false],
    ])
  })

  test('behavior: a wallet has at most a hundred listings, and a listing without a payment in 30 days is removed', async () => {
    const payTo = randomHex(20) as `0x${string}`
    await gateway.database`
      insert into declared_resource (resource, chain_id, pay_to, x402_version, amount, max_timeout_seconds, description, mime_type, tags, bazaar)
      select 'https://many.example/' || n, 31337, ${payTo}, 2, 1, 60, '', '', '{}', '{"info": {}}' from generate_series(1, 100) n`
    const declaration = {
      resource: 'https://many.example/101',
      chainId: 31337,
      payTo,
      providerId: null,
      x402Version: 2 as const,
      amount: 1n,
      maxTimeoutSeconds: 60,
      description: '',
      mimeType: '',
      bazaar: bazaar('GET'),
      serviceName: null,
      tags: [],
      iconUrl: null,
    } as const
    expect(await listDeclaration(gateway.database, declaration)).toBe(false)
    expect(
      await listDeclaration(gateway.database, { ...declaration, resource: 'https://many.example/7' }),
    ).toBe(true)
    await gateway.database`update declared_resource set settled_at = now() - interval '31 days' where pay_to = ${payTo}`
    await check(false)()
    expect(await listDeclaration(gateway.database, declaration)).toBe(true)
  })
})

test('behavior: 200 sellers whose answers can’t be stored don’t delay the check of another seller', async () => {
  const wallet = randomHex(20)
  answers.set('/good', { status: 402, body: exact(wallet) })
  const [{ due }] = await gateway.database<[{ due: Date }]>`select now() - interval '1 hour' as due`
  await gateway.database`
    insert into declared_resource (resource, chain_id, pay_to, x402_version, amount, max_timeout_seconds, description, mime_type, tags,
      bazaar, next_check_at)
    select ${`${origin}/bad/`} || n, 31337, '0x' || repeat('b', 34) || to_char(n, 'FM000000'), 2, 1, 60, '', '', '{}'::text[], '{}'::jsonb, ${due}::timestamptz
    from generate_series(1, 200) n
    union all select ${`${origin}/good`}, 31337, ${wallet}, 2, 1, 60, '', '', '{}'::text[], '{}'::jsonb, now()`
  const allow = await refuseWrites(
    gateway.database,
    'declared_resource',
    'update',
    "new.resource like '%/bad/%' and new.checked_at is distinct from old.checked_at",
  )
  const reports = collectBadRows()
  const step = check(true, reports.onBadRow)
  while ((await step()) === 'busy');
  const [good] = await gateway.database`
    select proven_at is not null as "isProven" from declared_resource where resource = ${`${origin}/good`}`
  expect(good).toEqual({ isProven: true })
  expect(reports.bad).toHaveLength(200)
  await allow()
  await gateway.database`delete from declared_resource where resource like '%/bad/%'`
})
