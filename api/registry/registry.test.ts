import type { App } from '@tollkeeper/api/http/app'
import { beforeAll, describe, expect, test } from 'vitest'
import { call, openShop, pay, type Shop, signedBody } from '../../test/support/gateway.ts'
import { useGateway } from '../../test/support/useGateway.ts'

// These tests change a provider after its registration, while buyers pay, several processes answer, and several people make changes.

const gateway = useGateway()
let app: App
beforeAll(async () => {
  app = gateway.app
})

let addresses = 0
const newAddress = () => `0x${(++addresses).toString(16).padStart(40, 'a')}`

const own = (shop: Shop, rest = '') => `/providers/${shop.providerId}${rest}`
const endpointPath = (shop: Shop) => own(shop, `/endpoints/${shop.endpointId}`)
const walletPath = (shop: Shop, walletId = shop.walletId) => own(shop, `/wallets/${walletId}`)

function send(
  shop: Shop,
  method: string,
  path: string,
  json?: unknown,
  headers: Record<string, string> = {},
) {
  return call(app, method, path, { key: shop.key, headers, ...(json !== undefined && { json }) })
}

/** Changes a resource without checking its version. */
async function change(shop: Shop, path: string, json: unknown) {
  const answer = await send(shop, 'PATCH', path, json, { 'if-match': '*' })
  expect([answer.status, answer.body]).toMatchObject([200, {}])
  return answer.body
}

async function changesOf(shop: Shop) {
  const { body } = await send(shop, 'GET', own(shop, '/changes?limit=100'))
  return body.changes as { by: string; subject: string; before: object | null; after: object }[]
}

const askChallenge = ({ providerId, endpointId }: Shop, on = app) =>
  call<{ code?: string; accepts: { maxAmountRequired: string; payTo: string }[] }>(on, 'POST', '/challenge', {
    json: { providerId, endpointId },
  })

async function verdict(json: unknown, on = gateway.another()) {
  const { status, body } = await call<{ code?: string; paymentId: string }>(on, 'POST', '/verify', { json })
  return { status, code: body.code, paymentId: body.paymentId }
}

describe('an endpoint', () => {
  test('behavior: two processes issue challenges with changed terms within two seconds of the change, and honor earlier challenges', async () => {
    const shop = await openShop(app, '0.05')
    const processes = [gateway.another(), gateway.another()]
    const start = Date.now()
    gateway.setNow(start)
    const terms = async () =>
      Promise.all(
        processes.map(async (on) => {
          const { accepts } = (await askChallenge(shop, on)).body
          return accepts.reduce((sum, { maxAmountRequired }) => sum + Number(maxAmountRequired), 0)
        }),
      )
    expect(await terms()).toEqual([50_000, 50_000])
    const before = await signedBody(gateway, shop, await gateway.buyer(1_000_000n))
    const wallet = newAddress()
    await change(shop, endpointPath(shop), {
      pricing: { usdcPerUnit: '0.08' },
      description: 'more expensive',
    })
    const { walletId, endpoints } = await change(shop, walletPath(shop), { address: wallet })
    expect(endpoints).toEqual([shop.endpointId])
    gateway.setNow(start + 2_000)
    expect(await terms()).toEqual([80_000, 80_000])
    for (const on of processes) expect((await askChallenge(shop, on)).body.accepts[0]?.payTo).toBe(wallet)
    gateway.setNow(null)

    const { status, paymentId } = await verdict(before)
    expect(status).toBe(200)
    const [payment] = await gateway.database`select payee, price from payment where id = ${paymentId}`
    expect(payment).toEqual({ payee: shop.wallet, price: 50_000n })
    expect((await send(shop, 'GET', endpointPath(shop))).body).toMatchObject({ walletId, version: 3 })
  })

  test('behavior: while an endpoint or its provider is disabled, refuses to issue challenges, and to accept test money for earlier challenges', async () => {
    const shop = await openShop(app, '0.05')
    // This chain is a test network. Test money for an earlier challenge is refused as well, but only while the endpoint is disabled (see
    // challenge/networks.test.ts).
    const before = await signedBody(gateway, shop, await gateway.buyer(1_000_000n))
    for (const [path, code] of [
      [endpointPath(shop), 'endpoint_disabled'],
      [own(shop), 'provider_disabled'],
    ] as const) {
      const disabled = await change(shop, path, { disabled: true })
      expect(disabled.disabledAt).toEqual(expect.any(String))
      const { status, body } = await askChallenge(shop, gateway.another())
      expect([status, body.code]).toEqual([409, code])
      expect(await verdict(before)).toMatchObject({ status: 409, code })
      expect((await change(shop, path, { disabled: false })).disabledAt).toBe(null)
    }
    expect((await askChallenge(shop, gateway.another())).status).toBe(200)
    expect((await verdict(before)).status).toBe(200)
  })

  test('behavior: an unknown field is refused, and a change without effect makes no new version', async () => {
    const own = await openShop(gateway.app)
    const at = `/providers/${own.providerId}`
    const requests: [string, string, object][] = [
      ['POST', '/providers', { name: 'Weather', requireKey: true }],
      ['PATCH', at, { disable: true }],
      ['POST', `${at}/keys`, { scopes: 'read' }],
      ['POST', `${at}/wallets`, { network: 'localhost', address: own.wallet, name: 'x' }],
      ['PATCH', `${at}/wallets/${own.walletId}`, { address: own.wallet, network: 'localhost' }],
      ['PUT', `${at}/upstream`, { url: 'https://origin.example', secret: 'x' }],
      ['POST', `${at}/webhooks`, { url: 'https://a.example', events: ['payment.settled'], secret: 'x' }],
      ['POST', `${at}/endpoints`, { url: '/x', method: 'GET', pricing: { usdcPerUnit: '0.05' }, price: '1' }],
      ['PATCH', `${at}/endpoints/${own.endpointId}`, { price: '0.06' }],
    ]
    for (const [method, path, json] of requests) {
      const headers = { 'if-match': '*' }
      const { body } = await call(gateway.app, method, path, { json, headers, key: own.key })
      expect([method, path, body.code]).toEqual([method, path, 'invalid_request'])
    }
    for (const [path, field] of [
      [at, 'name'],
      [`${at}/endpoints/${own.endpointId}`, 'pricing'],
    ] as const) {
      const before = await call(gateway.app, 'GET', path, { key: own.key })
      const json = { [field]: before.body[field] }
      const same = await call(gateway.app, 'PATCH', path, {
        json,
        headers: { 'if-match': '*' },
        key: own.key,
      })
      // The answer to a change of an endpoint also contains advice on its price.
      const { advice: _, ...resource } = same.body
      expect([path, same.status, resource]).toEqual([path, 200, before.body])
    }
  })

  test('error: rejects changes that would break a rule of registration', async () => {
    const shop = await openShop(app)
    const { body: other } = await send(shop, 'POST', own(shop, '/endpoints'), {
      url: 'https://shop.example/other',
      method: 'GET',
      pricing: { usdcPerUnit: '0.05' },
      walletId: shop.walletId,
    })
    const url = shop.url
    const at = own(shop, `/endpoints/${other.endpointId}`)
    const refused = async (path: string, json: unknown) => {
      const { status, body } = await send(shop, 'PATCH', path, json, { 'if-match': '*' })
      return [status, body.code]
    }
    expect(await refused(at, { url })).toEqual([409, 'endpoint_exists'])
    expect(await refused(at, { pricing: { usdcPerUnit: '0' } })).toEqual([422, 'price_below_minimum'])
    expect(await refused(at, { walletId: `wal_${'0'.repeat(32)}` })).toEqual([404, 'unknown_wallet'])
    // Another endpoint can take the place of a disabled endpoint. The disabled endpoint then can't be enabled again.
    await change(shop, endpointPath(shop), { disabled: true })
    await change(shop, at, { url })
    expect(await refused(endpointPath(shop), { disabled: false })).toEqual([409, 'endpoint_exists'])
  })
})

describe('an endpoint with a URL that would be refused today', () => {
  test.each(['https://shop.example/cities?x=1', 'https://shop.example/cities/%7Bid%7D'])(
    'behavior: can still be changed, paid to another wallet and disabled (%s)',
    async (url) => {
      const shop = await openShop(app)
      await gateway.database`update endpoint set url = ${url} where id = ${shop.endpointId}`
      const at = endpointPath(shop)
      expect(await change(shop, at, { pricing: { usdcPerUnit: '0.06' } })).toMatchObject({ url })
      expect(await change(shop, at, { url, description: 'Cities' })).toMatchObject({ url })
      const { body } = await send(
        shop,
        'PATCH',
        walletPath(shop),
        { address: newAddress() },
        { 'if-match': '*' },
      )
      expect(body).toMatchObject({ endpoints: [shop.endpointId] })
      expect(await change(shop, at, { disabled: true })).toMatchObject({
        url,
        disabledAt: expect.any(String),
      })
      const moved = await send(shop, 'PATCH', at, { url: `${url}/{name}` }, { 'if-match': '*' })
      expect(moved.body).toMatchObject({ code: 'invalid_field', field: 'url' })
    },
  )
})

describe('an endpoint that no request could reach', () => {
  const pricing = { usdcPerUnit: '0.05' }
  const register = async (shop: Shop, url: string, method: string) =>
    (await send(shop, 'POST', own(shop, '/endpoints'), { url, method, pricing, walletId: shop.walletId }))
      .body

  test('error: rejects an endpoint if it and other endpoints would together shadow a less specific endpoint completely', async () => {
    const shop = await openShop(app)
    const files = 'https://shop.example/files'
    const { endpointId } = await register(shop, `${files}/*`, 'GET')
    await register(shop, `${files}/:name/*`, 'GET')
    const refusal = { code: 'endpoint_exists', detail: expect.stringContaining('could reach GET /files/*:') }
    expect(await register(shop, files, 'GET')).toMatchObject(refusal)
    expect(await register(shop, files, '*')).toMatchObject(refusal)
    // Endpoints of another method don't shadow it.
    expect(await register(shop, files, 'POST')).toMatchObject({ path: '/files' })
    const at = own(shop, `/endpoints/${endpointId}`)
    await change(shop, at, { disabled: true })
    expect(await register(shop, files, 'GET')).toMatchObject({ path: '/files' })
    const again = await send(shop, 'PATCH', at, { disabled: false }, { 'if-match': '*' })
    expect(again.body).toMatchObject(refusal)
  })

  test('error: rejects URLs under the gateway’s own address that it does not serve', async () => {
    const shop = await openShop(app)
    const issuer = gateway.settings.issuer
    const mine = `${issuer}/p/${shop.providerId}`
    for (const url of [
      `${issuer}/forecast`,
      `${issuer}/p/prov_${'0'.repeat(32)}/forecast`,
      `${mine}x/forecast`,
    ])
      expect(await register(shop, url, 'GET')).toMatchObject({ code: 'invalid_field', field: 'url' })
    for (const url of ['/forecast', `${mine}/forecast`])
      expect(await register(shop, url, 'GET')).toMatchObject({ code: 'unknown_upstream' })
    await send(shop, 'PUT', own(shop, '/upstream'), { url: 'https://9.9.9.9' })
    const { endpointId } = await register(shop, '/forecast', 'GET')
    await send(shop, 'DELETE', own(shop, '/upstream'))
    const at = own(shop, `/endpoints/${endpointId}`)
    // Only a changed URL is checked.
    expect(await change(shop, at, { pricing: { usdcPerUnit: '0.06' } })).toMatchObject({ endpointId })
    const moved = await send(shop, 'PATCH', at, { url: '/weather' }, { 'if-match': '*' })
    expect(moved.body).toMatchObject({ code: 'unknown_upstream' })
  })
})

describe('concurrent changes', () => {
  test('error: rejects a change based on an old version, and a change that names no version', async () => {
    const shop = await openShop(app)
    for (const [path, json] of [
      [endpointPath(shop), { description: 'mine' }],
      [own(shop), { contact: 'ops@shop.example' }],
    ] as const) {
      const { headers, body } = await send(shop, 'GET', path)
      const etag = headers.get('etag') as string
      expect(etag).toBe(`"${body.version}"`)
      const patch = (seen: Record<string, string>) => send(shop, 'PATCH', path, json, seen)
      expect((await patch({})).body).toMatchObject({ status: 428, code: 'precondition_required' })
      const both = await Promise.all([patch({ 'if-match': etag }), patch({ 'if-match': etag })])
      expect(both.map(({ status }) => status).sort()).toEqual([200, 412])
      const late = both.find(({ status }) => status === 412)
      expect(late?.body).toMatchObject({ code: 'precondition_failed', version: 2 })
      expect((await patch({ 'if-match': `W/${etag}` })).status).toBe(412)
      // The header also names version 2, the current one. The change has no effect then, so the version remains 2.
      expect((await patch({ 'if-match': `${etag}, "2"` })).headers.get('etag')).toBe('"2"')
    }
  })
})

describe('a wallet', () => {
  test('behavior: is replaced in all endpoints at once, and keeps the payments that were signed for it', async () => {
    const shop = await openShop(app)
    const { body: disabled } = await send(shop, 'POST', own(shop, '/endpoints'), {
      url: 'https://shop.example/second',
      pricing: { usdcPerUnit: '0.05' },
      walletId: shop.walletId,
    })
    await change(shop, own(shop, `/endpoints/${disabled.endpointId}`), { disabled: true })
    const { paymentId } = await pay(gateway, shop)
    const replaced = await change(shop, walletPath(shop), { address: newAddress() })
    expect(replaced).toMatchObject({ replaces: shop.walletId, retiredAt: null })
    expect(new Set(replaced.endpoints as string[])).toEqual(new Set([shop.endpointId, disabled.endpointId]))
    const { body } = await send(shop, 'GET', own(shop, '/endpoints'))
    const { walletId } = replaced
    expect(body.endpoints).toMatchObject([{ walletId }, { walletId }])
    const [payment] = await gateway.database`select payee from payment where id = ${paymentId}`
    expect(payment?.payee).toBe(shop.wallet)
    const { body: queue } = await call(app, 'GET', `/settlements/status?wallet=${shop.wallet}`)
    expect(queue).toMatchObject({ payment_count: 1 })

    // The retired wallet still exists: replacing it again fails, and a later change back to its address reactivates it under its old id.
    const again = await send(shop, 'PATCH', walletPath(shop), { address: newAddress() })
    expect([again.status, again.body.code]).toEqual([409, 'wallet_retired'])
    const back = await change(shop, walletPath(shop, walletId as string), { address: shop.wallet })
    expect(back).toMatchObject({ walletId: shop.walletId, retiredAt: null })
  })

  test('error: a wallet that an endpoint uses can’t be retired, and a retired one can’t be used', async () => {
    const shop = await openShop(app)
    const inUse = await send(shop, 'DELETE', walletPath(shop))
    expect(inUse.body).toMatchObject({ code: 'wallet_in_use', endpoints: [shop.endpointId] })
    const { body: spare } = await send(shop, 'POST', own(shop, '/wallets'), {
      network: 'localhost',
      address: newAddress(),
    })
    expect((await send(shop, 'DELETE', walletPath(shop, spare.walletId as string))).status).toBe(204)
    const use = await send(
      shop,
      'PATCH',
      endpointPath(shop),
      { walletId: spare.walletId },
      { 'if-match': '*' },
    )
    expect([use.status, use.body.code]).toEqual([409, 'wallet_retired'])
    const same = await send(shop, 'PATCH', walletPath(shop), { address: shop.wallet })
    expect([same.status, same.body.code]).toEqual([409, 'wallet_exists'])
  })

  test('behavior: if a wallet is retired and chosen at the same moment, only one of the two succeeds', async () => {
    for (let round = 0; round < 5; round++) {
      const shop = await openShop(app)
      const { body: spare } = await send(shop, 'POST', own(shop, '/wallets'), {
        network: 'localhost',
        address: newAddress(),
      })
      const [retired, chosen] = await Promise.all([
        send(shop, 'DELETE', walletPath(shop, spare.walletId as string)),
        send(shop, 'PATCH', endpointPath(shop), { walletId: spare.walletId }, { 'if-match': '*' }),
      ])
      expect([
        [204, 409],
        [409, 200],
      ]).toContainEqual([retired.status, chosen.status])
    }
  })
})

describe('keys', () => {
  test('error: the last usable key can be revoked only with `force`, even if two keys are revoked at the same time', async () => {
    const shop = await openShop(app)
    const { body: second } = await send(shop, 'POST', own(shop, '/keys'), {})
    const revoke = (keyId: unknown, query = '') => send(shop, 'DELETE', own(shop, `/keys/${keyId}${query}`))
    const { body } = await send(shop, 'GET', own(shop, '/keys'))
    const [first] = body.keys as { keyId: string }[]
    const both = await Promise.all([revoke(first?.keyId), revoke(second.keyId)])
    expect(both.map(({ status }) => status).sort()).toEqual([204, 409])
    const kept = both[0].status === 409 ? first?.keyId : second.keyId
    const key = both[0].status === 409 ? shop.key : (second.apiKey as string)
    const last = await call(gateway.another(), 'DELETE', own(shop, `/keys/${kept}`), { key })
    expect(last.body).toMatchObject({ code: 'last_api_key' })
    const forced = await call(gateway.another(), 'DELETE', own(shop, `/keys/${kept}?force=true`), { key })
    expect(forced.status).toBe(204)
  })
})

describe('changes', () => {
  test('default: lists who changed what, newest first, in pages and without secrets', async () => {
    const shop = await openShop(app)
    const { body: issued } = await send(shop, 'POST', own(shop, '/keys'), { label: 'second' })
    const second = { ...shop, key: issued.apiKey as string }
    await change(second, own(shop), { name: 'Renamed', requiresKey: true })
    await change(second, endpointPath(shop), { pricing: { usdcPerUnit: '0.06' } })
    const changes = await changesOf(shop)
    expect(changes.slice(0, 3)).toMatchObject([
      {
        by: issued.keyId,
        subject: shop.endpointId,
        before: { pricing: { usdcPerUnit: '0.050000' }, version: 1 },
        after: { pricing: { usdcPerUnit: '0.060000' }, version: 2 },
      },
      { before: { requiresKey: false }, after: { name: 'Renamed', requiresKey: true, version: 2 } },
      { subject: issued.keyId, before: null, after: { label: 'second' } },
    ])
    expect(changes.slice(3).map(({ subject, before }) => [subject.split('_')[0], before])).toEqual(
      ['ep', 'wal', 'key', 'prov'].map((kind) => [kind, null]),
    )
    expect(JSON.stringify(changes)).not.toMatch(/tk_|secret/)

    const paged = []
    let cursor = ''
    do {
      const { body } = await send(shop, 'GET', own(shop, `/changes?limit=3${cursor}`))
      paged.push(...(body.changes as object[]))
      cursor = body.cursor === null ? '' : `&cursor=${body.cursor}`
    } while (cursor !== '')
    expect(paged).toEqual(changes)
  })

  test('error: a refused change leaves nothing in the history', async () => {
    const shop = await openShop(app)
    const before = await changesOf(shop)
    await send(shop, 'DELETE', walletPath(shop))
    await send(shop, 'PATCH', endpointPath(shop), { walletId: `wal_${'0'.repeat(32)}` }, { 'if-match': '*' })
    await send(shop, 'PATCH', own(shop), { name: 'x' }, { 'if-match': '"9"' })
    expect(await changesOf(shop)).toEqual(before)
  })
})
