import type { Server } from 'node:http'
import { createAdaptorServer } from '@hono/node-server'
import { issueRecordedApiKey } from '@tollkeeper/api/registry/apiKeys'
import { createGate, type GateOptions } from '@tollkeeper/sdk/middleware/gate'
import { requirePayment } from '@tollkeeper/sdk/middleware/hono'
import { parseChallenge } from '@tollkeeper/sdk/protocol/challenge'
import { decodePaymentRequiredHeader } from '@x402/core/http'
import { Hono } from 'hono'
import { beforeAll, describe, expect, test, vi } from 'vitest'
import { listen, urlOf } from '../../../sdk/test/serve.ts'
import { call, openShop, type Shop } from '../../../test/support/gateway.ts'
import { useGateway } from '../../../test/support/useGateway.ts'

// Middlewares send the requested resource, and the gateway decides which endpoint that is and what it costs.

const gateway = useGateway()
let shop: Shop
let endpoints: Record<string, string>

/** The registered endpoints with their prices in cents. */
const registered: [method: string, path: string, cents: number][] = [
  ['GET', '/users/:id', 2],
  ['*', '/users/:id', 3],
  ['*', '/users/me', 4],
  ['GET', '/*', 5],
  ['POST', '/users/me', 6],
]

beforeAll(async () => {
  shop = await openShop(gateway.app)
  endpoints = {}
  for (const [method, path, cents] of registered) {
    const { status, body } = await register(method, path, cents)
    expect([status, body]).toMatchObject([201, { path }])
    endpoints[`${method} ${path}`] = body.endpointId as string
  }
})

function register(method: string, path: string, cents: number) {
  return call(gateway.app, 'POST', `/providers/${shop.providerId}/endpoints`, {
    key: shop.key,
    json: {
      url: `https://api.example${path}`,
      method,
      walletId: shop.walletId,
      pricing: { usdcPerUnit: `0.0${cents}` },
    },
  })
}

async function ask(method: string, resource: string, on = gateway.app) {
  const { status, body } = await call<{ endpointId?: string; code?: string }>(on, 'POST', '/challenge', {
    json: { providerId: shop.providerId, method, resource },
  })
  return status === 200 ? body.endpointId : body.code
}

describe('the seller’s name', () => {
  const challenge = async (path: string) => {
    const { body } = await call<{ seller?: { name: string; listing?: string } }>(
      ...([gateway.app, 'POST', '/challenge'] as const),
      { json: { providerId: shop.providerId, method: 'GET', resource: path } },
    )
    return body
  }

  test('a challenge has the provider’s name and its listing’s page on the market', async () => {
    const { body } = await call<{ name: string }>(gateway.app, 'GET', `/providers/${shop.providerId}`, {
      key: shop.key,
    })
    const { seller } = await challenge('/users/7')
    expect(seller?.name).toBe(body.name)
    // The URL equals the dashboard's listingLink.
    const { body: catalog } = await call<{
      items: { resource: string; accepts: { payTo: string; extra: { seller?: string } }[] }[]
    }>(gateway.another(), 'GET', '/discovery/resources?limit=100')
    const listed = catalog.items.find(({ resource }) => resource === 'https://api.example/users/:id')
    const [offer] = listed?.accepts ?? []
    const route = `market/${offer?.extra.seller ?? offer?.payTo}/${encodeURIComponent(listed?.resource ?? '')}`
    expect(new URL(seller?.listing ?? '').pathname).toBe('/dashboard/')
    expect(new URL(seller?.listing ?? '').hash).toBe(`#/${route}`)
  })

  test('leaves the seller’s name out of 402 answers for programs', async () => {
    const gate = createGate({
      gatewayUrl: 'https://gateway.example',
      providerId: shop.providerId,
      pricing: { usdcPerUnit: '0.02' },
      fetch: (url: string, init: RequestInit) => gateway.app.request(new URL(url).pathname, init),
    } as GateOptions)
    const decision = await gate.check({ method: 'GET', url: 'https://api.example/users/7' })
    if (decision.kind !== 'answer') throw new Error('Expected an answer')
    const { body, headers } = decision.answer
    expect([
      JSON.parse(body as string).seller,
      decodePaymentRequiredHeader(`${headers['PAYMENT-REQUIRED']}`),
    ]).toEqual([undefined, expect.not.objectContaining({ seller: expect.anything() })])
  })
})

test.each([
  ['GET', '/users/7?page=2', 'GET /users/:id'],
  ['GET', 'https://api.example/users/7?page=2', 'GET /users/:id'],
  ['GET', '/users/7/', 'GET /users/:id'],
  ['PUT', '/users/7', '* /users/:id'],
  ['GET', '/users/me', '* /users/me'],
  ['POST', '/users/me', 'POST /users/me'],
  ['GET', '/users', 'GET /*'],
  ['GET', '/', 'GET /*'],
  // Only `GET /*` matches this path, so there is no endpoint for PUT.
  ['PUT', '/elsewhere', 'unknown_endpoint'],
  ['GET', '/users/ME', 'unknown_endpoint'],
  ['GET', '/users//me', 'unknown_endpoint'],
  ['GET', '/users/%6De', 'unknown_endpoint'],
  ['GET', '/users/x%2Fme', 'unknown_endpoint'],
  ['GET', '/users/me;v=1', 'unknown_endpoint'],
  ['GET', '/x/../users/me', 'invalid_field'],
  ['GET', '/x/%2e%2E/users/me', 'invalid_field'],
  ['GET', 'https://api.example/x\\..\\users', 'invalid_field'],
  ['GET', '//cheap.example/users/7', 'unknown_endpoint'],
  ['GET', '/\\cheap.example/users/7', 'invalid_field'],
  ['GET', 'users/7', 'invalid_field'],
])(
  'behavior: a challenge request for %s %s gets the endpoint or error code %s',
  async (method, path, expected) => {
    expect(await ask(method, path)).toBe(endpoints[expected] ?? expected)
  },
)

test.each([
  ['GET', '/users/:name/', 'endpoint_exists'],
  ['GET', '/Users/:id', 'endpoint_exists'],
  ['POST', '/users/%6De', 'endpoint_exists'],
  ['GET', '/users/*/x', 'invalid_field'],
  ['GET', '/users/:id?', 'invalid_field'],
  ['GET', '/users//x', 'invalid_field'],
  ['GET', '/users/../x', 'invalid_field'],
])('error: registering %s %s is refused with %s', async (method, path, code) => {
  expect((await register(method, path, 2)).body.code).toBe(code)
})

test('behavior: another process issues challenges for a new endpoint immediately, and for a more specific endpoint within two seconds', async () => {
  const other = gateway.another()
  const start = Date.now()
  gateway.setNow(start)
  expect(await ask('PUT', '/shops/1', other)).toBe('unknown_endpoint')
  expect(await ask('GET', '/shops/1', other)).toBe(endpoints['GET /*'])
  const { body } = await register('PUT', '/shops/:id', 2)
  gateway.setNow(start + registered.length + 2)
  expect(await ask('PUT', '/shops/1', other)).toBe(body.endpointId)
  const specific = await register('PUT', '/shops/1', 3)
  gateway.setNow(start + 4_000)
  expect(await ask('PUT', '/shops/1', other)).toBe(specific.body.endpointId)
})

test('behavior: a disabled endpoint refuses its requests even if a less specific endpoint matches them; a new endpoint can replace it', async () => {
  const { body } = await register('GET', '/premium', 9)
  const change = (json: object) =>
    call(gateway.app, 'PATCH', `/providers/${shop.providerId}/endpoints/${body.endpointId}`, {
      key: shop.key,
      headers: { 'if-match': '*' },
      json,
    })
  await change({ disabled: true })
  expect(await ask('GET', '/premium', gateway.another())).toBe('endpoint_disabled')
  const { body: successor } = await register('GET', '/premium', 8)
  expect(await ask('GET', '/premium', gateway.another())).toBe(successor.endpointId)
})

test('behavior: the challenge has the registered origin, regardless of the request’s headers', async () => {
  const server = createAdaptorServer({ fetch: gateway.app.fetch }) as Server
  await listen(server)
  const warn = vi.spyOn(console, 'warn').mockImplementation(() => {})
  const options = { gatewayUrl: urlOf(server), providerId: shop.providerId, pricing: { usdcPerUnit: '0.02' } }
  const app = (more: Partial<GateOptions> = {}) =>
    new Hono().get('/users/*', requirePayment({ ...options, ...more }), (c) => c.text('served'))
  const resourceOf = async (on: Hono, url: string, headers: Record<string, string> = {}) => {
    const response = await on.request(url, { headers })
    const { accepts, endpointId } = parseChallenge(await response.json())
    expect(endpointId).toBe(endpoints['GET /users/:id'])
    const required = decodePaymentRequiredHeader(response.headers.get('payment-required') ?? '')
    expect(required.resource.url).toBe(accepts[0].resource)
    return accepts[0].resource
  }
  const forwarded = { 'x-forwarded-proto': 'https', 'x-forwarded-host': 'api.example' }
  const price = 'https://api.example/users/7?page=2'

  // The headers that the proxy adds agree with the registry, so there is no warning.
  const quiet = app()
  expect(await resourceOf(quiet, 'http://10.0.0.7:4030/users/7?page=2', forwarded)).toBe(price)
  expect(warn).not.toHaveBeenCalled()

  // Headers from a buyer select nothing, and cause one log line.
  const lies = { 'x-forwarded-host': 'evil.example\tx, api.example', 'x-forwarded-proto': 'ftp\tx' }
  expect(await resourceOf(quiet, 'https://evil.example/users/7?page=2', lies)).toBe(price)
  expect(await resourceOf(quiet, 'http://10.0.0.7:4030/users/7?page=2')).toBe(price)
  expect(warn.mock.calls).toEqual([
    [
      expect.stringMatching(
        /registered for https:\/\/api\.example, .* was sent to https:\/\/evil\.example\. If/,
      ),
    ],
  ])

  // If a provider configures its public URL, that is used without a warning.
  const other = app({ publicUrl: 'https://shop.example' })
  expect(await resourceOf(other, 'http://10.0.0.7:4030/users/7')).toBe('https://shop.example/users/7')
  expect(warn).toHaveBeenCalledOnce()
  warn.mockRestore()
})

test('behavior: behind a proxy that strips a prefix, the middleware finds its endpoint and price', async () => {
  const server = createAdaptorServer({ fetch: gateway.app.fetch }) as Server
  await listen(server)
  const check = async (url: string, options: Partial<GateOptions>) => {
    const gate = createGate({
      gatewayUrl: urlOf(server),
      providerId: shop.providerId,
      pricing: { usdcPerUnit: '0.02' },
      ...options,
    })
    const decision = await gate.check({ method: 'GET', url, authorization: undefined })
    if (decision.kind !== 'answer') throw new Error('it was served')
    const { status, body } = decision.answer
    return status === 402 ? parseChallenge(JSON.parse(body)) : status
  }
  const found = await check('http://10.0.0.1:3000/7', {
    basePath: '/users',
    publicUrl: 'https://api.example',
  })
  expect(found).toMatchObject({
    endpointId: endpoints['GET /users/:id'],
    accepts: [{ resource: 'https://api.example/users/7' }, {}],
  })
  // The gateway sells no path that servers could interpret as another one.
  expect(await check('http://10.0.0.1:3000/users//7', {})).toBe(404)
  // A disabled endpoint is refused, so the middleware serves nothing for it.
  const { body: gone } = await register('GET', '/gone', 2)
  await call(gateway.app, 'PATCH', `/providers/${shop.providerId}/endpoints/${gone.endpointId}`, {
    key: shop.key,
    headers: { 'if-match': '*' },
    json: { disabled: true },
  })
  expect(await check('http://10.0.0.1:3000/gone', { endpointId: gone.endpointId as string })).toBe(409)
  server.close()
})

test('error: a provider can’t register more endpoints than the limit, which bounds what each process holds in memory', async () => {
  const { providerId, walletId } = await openShop(gateway.app)
  await gateway.database`
    insert into endpoint (id, provider_id, wallet_id, chain_id, testnet, method, url, host, path, shape, price)
    select 'ep_' || md5(n || ${providerId}), ${providerId}, ${walletId}, 31337, true, 'GET', 'https://x.example/' || n, 'x.example',
      '/' || n, '/' || n, 50000
    from generate_series(2, 1000) n`
  const last = shop
  shop = { ...last, providerId, walletId, key: await keyOf(providerId) }
  expect((await register('GET', '/one-more', 2)).body.code).toBe('endpoint_limit_reached')
  shop = last
})

async function keyOf(providerId: string): Promise<string> {
  const issued = await issueRecordedApiKey(gateway.database, { providerId, by: null })
  return issued?.apiKey ?? ''
}
