import { beforeAll, expect, test } from 'vitest'
import { call, openShop, type Shop, signedBody } from '../../test/support/gateway.ts'
import { openTab } from '../../test/support/tabBuyer.ts'
import { useGateway } from '../../test/support/useGateway.ts'
import { newOperatorKey } from '../http/operator.ts'

/*
 * Calls every route of the OpenAPI document for one provider's things with another provider's key. A new route is covered without a change
 * here. If its path names a kind of thing that this test doesn't know, the test fails and names the kind.
 */

type Operation = { parameters?: { name: string; in: string; required?: boolean }[]; security?: object[] }
type Document = { paths: Record<string, Record<string, Operation>> }

const operator = newOperatorKey()
const gateway = useGateway({ operatorKeyHashes: [Buffer.from(operator.hash, 'hex')] })
let theirs: Shop
let mine: Shop
let things: Record<string, string>
let document: Document

beforeAll(async () => {
  theirs = await openShop(gateway.app)
  mine = await openShop(gateway.app)
  const at = `/providers/${theirs.providerId}`
  const { key } = theirs
  const payer = await gateway.buyer(1_000_000n)
  const body = await signedBody(gateway, theirs, payer)
  const { body: paid } = await call(gateway.app, 'POST', '/verify', { json: body })
  const { body: issued } = await call(gateway.app, 'POST', `${at}/keys`, { key, json: { label: 'second' } })
  const { body: webhook } = await call(gateway.app, 'POST', `${at}/webhooks`, {
    key,
    json: { url: 'http://127.0.0.1:9/hook', events: ['payment.settled'] },
  })
  const tab = openTab(gateway, await gateway.buyer(1_000_000n))
  await tab.buy(theirs)
  things = {
    id: theirs.providerId,
    walletId: theirs.walletId,
    endpointId: theirs.endpointId,
    paymentId: paid.paymentId as string,
    keyId: issued.keyId as string,
    webhookId: webhook.webhookId as string,
    deliveryId: `whd_${'0'.repeat(32)}`,
    tabId: tab.tabId,
    sequence: '1',
    useId: crypto.randomUUID(),
    payer: payer.address.toLowerCase(),
  }
  document = (await call<Document>(gateway.app, 'GET', '/openapi/gateway.json')).body
})

/**
 * Returns the routes that need a provider's key: every route under a provider, and every other route for which the document requires a key.
 */
function protectedRoutes(): { method: string; path: string }[] {
  return Object.entries(document.paths).flatMap(([path, operations]) =>
    Object.entries(operations)
      .filter(
        ([, { security = [] }]) =>
          path.startsWith('/providers/{id}') ||
          (security.length > 0 && security.every((one) => Object.keys(one).length > 0)),
      )
      .map(([method]) => ({ method: method.toUpperCase(), path })),
  )
}

function fill(path: string): string {
  return path.replace(/\{(\w+)\}/g, (_, name: string) => {
    // An id directly after /receipts and /payments is that of a payment.
    const value = things[name]
    if (value === undefined) throw new Error(`${path} names ${name}, which this test doesn't know`)
    return value
  })
}

const tables = [
  'provider',
  'api_key',
  'wallet',
  'endpoint',
  'payment',
  'webhook',
  'upstream',
  'accept_hook',
] as const

async function snapshot(): Promise<string> {
  const rows = []
  for (const table of tables) {
    const [row] = await gateway.database`
      select md5(string_agg(t::text, '|' order by t::text)) as sum from ${gateway.database(table)} t`
    rows.push(row?.sum)
  }
  return rows.join()
}

const bodies = [
  undefined,
  {},
  {
    network: 'localhost',
    address: `0x${'ab'.repeat(20)}`,
    url: 'https://mine.example/x',
    pricing: { usdcPerUnit: '0.05' },
    events: ['payment.settled'],
    name: 'Mine',
    label: 'mine',
    payload: 'mine',
  },
]

const fields = [
  { disabled: true },
  { retired: true },
  { useId: crypto.randomUUID() },
  ...Object.entries(bodies[2] ?? {}).map(([name, value]) => ({ [name]: value })),
]

test('error: no route reveals or changes anything of another provider', async () => {
  const routes = protectedRoutes()
  expect(routes.length).toBeGreaterThan(15)
  const before = await snapshot()
  const allowed: string[] = []
  const unproven: string[] = []
  for (const { method, path } of routes) {
    // A route without an id is about the caller itself; the operator's own routes have a separate test.
    if (!path.includes('{') || path.startsWith('/operator/')) continue
    for (const key of [
      mine.key,
      undefined,
      `${theirs.key.slice(0, -1)}${theirs.key.endsWith('A') ? 'B' : 'A'}`,
    ]) {
      let isRefused = false
      for (const json of method === 'GET' || method === 'DELETE' ? [undefined] : bodies) {
        const answer = await call(gateway.app, method, fill(path), {
          ...(json !== undefined && { json }),
          ...(key !== undefined && { key }),
        })
        const expected = key === mine.key ? [403] : [401]
        // Most routes check the key before the body's form, and some after it. Neither order reveals anything.
        const isBadBody = [400, 415, 422].includes(answer.status)
        isRefused ||= expected.includes(answer.status)
        if (!expected.includes(answer.status) && !isBadBody)
          allowed.push(
            `${method} ${path} answered ${answer.status} to ${key === mine.key ? 'another' : 'no'} key`,
          )
        expect(JSON.stringify(answer.body)).not.toContain(theirs.wallet)
      }
      // If every body was rejected as malformed, the key was never tested.
      if (!isRefused) unproven.push(`${method} ${path}`)
    }
  }
  expect(allowed).toEqual([])
  expect(unproven).toEqual([])
  expect(await snapshot()).toBe(before)
})

test('error: allows only the provider itself to ask for less than the registered price', async () => {
  const { providerId, endpointId, key } = theirs
  const json = { providerId, endpointId, pricing: { usdcPerUnit: '0.01' } }
  const ask = async (apiKey?: string) =>
    (await call(gateway.app, 'POST', '/challenge', { json, ...(apiKey !== undefined && { key: apiKey }) }))
      .body
  expect(await ask(key)).toMatchObject({ providerId })
  for (const other of [undefined, mine.key])
    expect(await ask(other)).toMatchObject({ code: 'price_below_registered' })
})

test('error: a read-only key opens every route that reads, and none that writes', async () => {
  const json = { label: 'accountant', scope: 'read' }
  const at = `/providers/${theirs.providerId}`
  const { body: issued } = await call(gateway.app, 'POST', `${at}/keys`, { key: theirs.key, json })
  const key = issued.apiKey as string
  expect((await call(gateway.app, 'GET', '/account', { key })).body).toMatchObject({ scope: 'read' })
  const before = await snapshot()
  const routes = Object.entries(document.paths).flatMap(([path, operations]) =>
    Object.keys(operations).map((method) => ({ method: method.toUpperCase(), path })),
  )
  const writing = routes.filter(({ method, path }) => method !== 'GET' && !path.startsWith('/p/'))
  expect(writing.length).toBeGreaterThan(20)
  for (const { method, path } of writing) {
    for (const json of method === 'DELETE' ? [undefined] : bodies) {
      const answer = await call(gateway.app, method, fill(path), { key, ...(json !== undefined && { json }) })
      expect([method, path, answer.status, answer.body.code]).toEqual([method, path, 403, 'forbidden'])
    }
  }
  const reading = protectedRoutes().filter(({ method }) => method === 'GET')
  for (const { method, path } of reading.filter(({ path }) => path.startsWith('/providers/'))) {
    const { status } = await call(gateway.app, method, fill(path), { key })
    // Some routes answer 404, because there is no upstream or no such delivery, and some 400, because the query lacks a required parameter.
    expect([path, [200, 400, 404].includes(status) && status]).toEqual([path, status])
  }
  expect(await snapshot()).toBe(before)

  // The gateway refuses to revoke a provider's last key that may make changes. The remaining read-only key doesn't help.
  await call(gateway.app, 'DELETE', `${at}/keys/${things.keyId}`, { key: theirs.key })
  const last = await call(gateway.app, 'DELETE', `${at}/keys/key_${theirs.key.split('_')[1]}`, {
    key: theirs.key,
  })
  expect(last.body.code).toBe('last_api_key')
})

test("error: the operator's key opens only the operator's routes, and no other key opens them", async () => {
  const status = async (method: string, path: string, key?: string) =>
    (await call(gateway.app, method, path, key === undefined ? {} : { key })).status
  const wrong = `${operator.key.slice(0, -1)}${operator.key.endsWith('A') ? 'B' : 'A'}`
  const others = protectedRoutes().filter(({ path }) => !path.startsWith('/operator/'))
  for (const { method, path } of others) {
    const got = await status(method, fill(path), operator.key)
    expect([method, path, [400, 401, 415, 422].includes(got)]).toEqual([method, path, true])
  }
  const own = protectedRoutes().filter(({ path }) => path.startsWith('/operator/'))
  expect(own.map(({ method }) => method).sort()).toEqual(['GET', 'GET', 'PATCH', 'POST'])
  for (const { method, path } of own) {
    for (const key of [undefined, theirs.key, wrong, operator.hash]) {
      expect([path, await status(method, fill(path), key)]).toEqual([path, 401])
    }
    const open = await status(method, fill(path), operator.key)
    // A waiting payment can't be requeued, and a change needs a body.
    expect([path, open]).toEqual([path, { GET: 200, PATCH: 400, POST: 409 }[method]])
  }
})

test('behavior: every route is in the document, and the routes without a key are the expected ones', () => {
  const documented = Object.entries(document.paths).flatMap(([path, operations]) =>
    Object.keys(operations).map((method) => `${method.toUpperCase()} ${path}`),
  )
  const served = gateway.app.routes
    .filter(({ method }) => method !== 'ALL')
    .map(({ method, path }) => `${method} ${path.replace(/:(\w+)(\{.*\})?/g, '{$1}')}`)
  expect(new Set(served.filter((route) => !documented.includes(route)))).toEqual(
    new Set([
      'GET /metrics',
      'GET /openapi/gateway.json',
      // The listings of this gateway, for buyers and crawlers.
      'GET /openapi.json',
      'GET /.well-known/x402',
      'GET /llms.txt',
      'GET /favicon.svg',
      'GET /dashboard',
      'GET /dashboard/',
      'GET /dashboard/{file}',
    ]),
  )

  const locked = protectedRoutes().map(({ method, path }) => `${method} ${path}`)
  expect(documented.filter((route) => !locked.includes(route)).sort()).toEqual([
    'DELETE /p/{providerId}/{path}',
    'GET /',
    'GET /.well-known/did.json',
    'GET /.well-known/jwks.json',
    'GET /authorizations/{authorizer}/{nonce}',
    'GET /challenge',
    'GET /discovery/merchant',
    'GET /discovery/providers/{id}',
    'GET /discovery/resources',
    'GET /discovery/search',
    'GET /healthz',
    'GET /network',
    'GET /network/batches',
    'GET /networks',
    'GET /p/{providerId}/{path}',
    'GET /payments/{paymentId}',
    'GET /readyz',
    'GET /receipts/{id}',
    'GET /settlements/batches',
    'GET /settlements/export',
    'GET /settlements/pending',
    'GET /settlements/status',
    'GET /tabs/{tabId}',
    'GET /tabs/{tabId}/requests/{sequence}',
    'PATCH /p/{providerId}/{path}',
    'POST /challenge',
    'POST /discovery/validate',
    'POST /p/{providerId}/{path}',
    'POST /providers',
    'POST /tabs/{tabId}/close',
    'POST /verify',
    'PUT /p/{providerId}/{path}',
  ])
})

test('error: a caller reaches nothing of another provider through a path under its own provider', async () => {
  const before = await snapshot()
  const reached: string[] = []
  for (const { method, path } of protectedRoutes()) {
    if (!path.startsWith('/providers/{id}/') || !/\{id\}.*\{/.test(path)) continue
    const own = fill(path.replace('{id}', mine.providerId))
    const statuses = new Set<number>()
    // A route rejects a body with an unknown field, so each field is also sent alone.
    for (const json of method === 'GET' || method === 'DELETE' ? [undefined] : [...bodies, ...fields]) {
      const answer = await call(gateway.app, method, own, { ...(json && { json }), key: mine.key })
      statuses.add(answer.status)
      expect(JSON.stringify(answer.body)).not.toContain(theirs.wallet)
    }
    const isRefused = statuses.has(404) || statuses.has(403)
    if (!isRefused || ![...statuses].every((status) => [400, 403, 404, 415, 422].includes(status)))
      reached.push(`${method} ${path} answered ${[...statuses]}`)
  }
  expect(reached).toEqual([])
  expect(await snapshot()).toBe(before)
})
