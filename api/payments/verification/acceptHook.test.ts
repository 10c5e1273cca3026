import { createGate } from '@tollkeeper/sdk/middleware/gate'
import { encodeAuthorizationHeader } from '@tollkeeper/sdk/protocol/authorizationHeader'
import { afterAll, beforeAll, beforeEach, describe, expect, test } from 'vitest'
import { call, openShop, type Shop, signedBody } from '../../../test/support/gateway.ts'
import { startHook } from '../../../test/support/hookReceiver.ts'
import { openTab } from '../../../test/support/tabBuyer.ts'
import { useGateway, useShop } from '../../../test/support/useGateway.ts'

// A seller's hook at the gateway, over real connections. Each app stands for one process.

const gateway = useGateway()
let hook: Awaited<ReturnType<typeof startHook>>
let secret: string
const shop = useShop(gateway)
const other = useShop(gateway)
const fresh = () => gateway.another()

const register = (of: Shop, json: object) =>
  call<{ secret?: string; code?: string }>(gateway.app, 'PUT', `/providers/${of.providerId}/hook`, {
    key: of.key,
    json: { url: hook.url, ...json },
  })

beforeAll(async () => {
  hook = await startHook()
  secret = (await register(shop, {})).body.secret ?? ''
})
beforeEach(() => {
  hook.clear()
  hook.state.decide = () => ({ accept: true })
})
afterAll(() => hook?.close())

const verify = (json: unknown, app = fresh(), headers: Record<string, string> = {}) =>
  call<{ code?: string; detail?: string; reason?: string; paymentId?: string }>(app, 'POST', '/verify', {
    json,
    headers,
  })
const storedOf = async (payer: string) => {
  const rows = await gateway.database`select id from payment where payer = ${payer.toLowerCase()}`
  return rows.length
}

describe('payments', () => {
  test('the gateway sends a payment that has a valid signature to the hook, in a request that the gateway signs', async () => {
    const buyer = await gateway.buyer(1_000_000n)
    expect((await verify(await signedBody(gateway, shop, buyer))).status).toBe(200)
    expect(hook.asked()).toEqual([
      {
        moment: 'payment',
        source: 'verify',
        providerId: shop.providerId,
        endpointId: shop.endpointId,
        payer: buyer.address.toLowerCase(),
        amount: '50000',
        usdc: '0.05',
        network: 'localhost',
        resource: shop.url,
        request: null,
      },
    ])
    expect(hook.ids(secret)).toHaveLength(1)
  })

  test('answers a refused payment with the reason, and stores nothing', async () => {
    const buyer = await gateway.buyer(1_000_000n)
    hook.state.decide = ({ payer }) =>
      payer === buyer.address.toLowerCase() ? { refuse: 'On a list', code: 'sanctioned' } : { accept: true }
    const refused = await verify(await signedBody(gateway, shop, buyer))
    expect(refused).toMatchObject({
      status: 403,
      body: { code: 'payment_declined', detail: 'On a list', reason: 'sanctioned', verified: false },
    })
    expect(await storedOf(buyer.address)).toBe(0)
    expect((await verify(await signedBody(gateway, shop, await gateway.buyer(1_000_000n)))).status).toBe(200)
  })

  test('refuses a payment that names an allowed payer but is signed by another key, without calling the hook', async () => {
    const [allowed, thief] = [await gateway.buyer(1_000_000n), await gateway.buyer(1_000_000n)]
    const forged = await signedBody(gateway, shop, allowed, [{ signer: thief }, { signer: thief }])
    expect((await verify(forged)).body.code).toBe('invalid_signature')
    expect(hook.asked()).toEqual([])
  })

  test('sends each request on a tab to the hook, and repeats the answer to an earlier request regardless of the current decision', async () => {
    const tab = openTab(gateway, await gateway.buyer(5_000_000n))
    const [first, second] = [await tab.sign(shop), await tab.sign(shop)]
    expect((await tab.present(first, { key: 'one', app: fresh() })).status).toBe(200)
    hook.state.decide = () => ({ refuse: 'no more' })
    expect(await tab.present(second, { app: fresh() })).toMatchObject({
      status: 403,
      body: { code: 'payment_declined' },
    })
    expect((await tab.present(first, { key: 'one', app: fresh() })).status).toBe(200)
    expect(hook.asked().map(({ source }) => source)).toEqual(['tab', 'tab', 'tab'])
    const [one, , again] = hook.ids(secret)
    expect(again).toBe(one)
    const opening = openTab(gateway, await gateway.buyer(5_000_000n))
    expect((await opening.buy(shop)).status).toBe(403)
    expect((await tab.close()).status).toBe(200)
  })

  test('repeats the answer to an accepted payment, even if the hook has refused its payer since', async () => {
    const buyer = await gateway.buyer(1_000_000n)
    const json = await signedBody(gateway, shop, buyer)
    const headers = { 'idempotency-key': 'one' }
    const app = fresh()
    const first = await verify(json, app, headers)
    hook.state.decide = () => ({ refuse: 'since then' })
    expect((await verify(json, app, headers)).body.paymentId).toBe(first.body.paymentId)
    expect(hook.asked()).toHaveLength(1)
    const elsewhere = await verify(json, fresh(), headers)
    expect([elsewhere.status, elsewhere.body.paymentId]).toEqual([200, first.body.paymentId])
    expect((await verify(json)).body.code).toBe('payment_replayed')
  })

  test.each([
    [{ price: '0.04' }, 200, undefined],
    [{ price: '0.05' }, 200, undefined],
    [{ free: true }, 200, undefined],
    [{ price: '0.06' }, 402, 'challenge_price_too_low'],
  ])('a payment must cover the price that the hook sets: %j', async (decision, status, code) => {
    hook.state.decide = () => decision
    const answer = await verify(await signedBody(gateway, shop, await gateway.buyer(1_000_000n)))
    expect([answer.status, answer.body.code]).toEqual([status, code])
  })

  test('makes no query and no call for a provider without a hook', async () => {
    const asked: string[] = []
    const app = gateway.withOptions({
      sql: new Proxy(gateway.database, {
        apply(target, self, given) {
          const [strings] = given as [TemplateStringsArray]
          if (Array.isArray(strings)) asked.push(strings.join('?'))
          return Reflect.apply(target, self, given)
        },
      }),
    })
    expect(
      (await verify(await signedBody(gateway, other, await gateway.buyer(1_000_000n)), app)).status,
    ).toBe(200)
    expect(hook.asked()).toEqual([])
    expect(asked.filter((text) => /from accept_hook/.test(text))).toEqual([])
  })
})

describe('a hook without a decision', () => {
  const answers: [string, typeof hook.state.decide][] = [
    ['an error', (_, response) => void response.writeHead(500).end()],
    ['a redirect', (_, response) => void response.writeHead(307, { location: hook.url }).end()],
    [
      'another type',
      (_, response) => void response.writeHead(200, { 'content-type': 'text/html' }).end('{"accept":true}'),
    ],
    ['too much', () => ({ accept: true, more: 'x'.repeat(100_000) })],
    ['a contradiction', () => ({ accept: true, refuse: 'no' })],
    ['a negative price', () => ({ price: '-1' })],
    ['a price of 10^30', () => ({ price: `1${'0'.repeat(30)}` })],
    ['a negative cache time', () => ({ accept: true, cacheSeconds: -1 })],
  ]

  test.each(answers)(
    'makes the gateway refuse payments with a retryable error if it answers with %s',
    async (_, decide) => {
      hook.state.decide = decide
      const buyer = await gateway.buyer(1_000_000n)
      const json = await signedBody(gateway, shop, buyer)
      const app = fresh()
      const answer = await verify(json, app)
      expect([answer.status, answer.body.code, answer.headers.get('retry-after')]).toEqual([
        503,
        'decision_unavailable',
        '1',
      ])
      expect(await storedOf(buyer.address)).toBe(0)
      hook.state.decide = () => ({ accept: true })
      expect((await verify(json, app)).status).toBe(200)
    },
  )

  test('accepts payments if its provider registered it with `onFailure: accept`', async () => {
    const lenient = await openShop(gateway.app)
    await register(lenient, { onFailure: 'accept' })
    hook.state.decide = (_, response) => void response.writeHead(500).end()
    expect((await verify(await signedBody(gateway, lenient, await gateway.buyer(1_000_000n)))).status).toBe(
      200,
    )
  })

  test('is not called for a while after five failures, and delays no other provider', async () => {
    hook.state.decide = (_, response) => void response.destroy()
    const app = fresh()
    const bodies = await Promise.all(
      Array.from({ length: 7 }, async () => signedBody(gateway, shop, await gateway.buyer(1_000_000n))),
    )
    for (const json of bodies) expect((await verify(json, app)).body.code).toBe('decision_unavailable')
    expect(hook.asked()).toHaveLength(5)
    const paid = await verify(await signedBody(gateway, other, await gateway.buyer(1_000_000n)), app)
    expect(paid.status).toBe(200)
    gateway.setNow(Date.now() + 11_000)
    hook.state.decide = () => ({ accept: true })
    expect((await verify(bodies[0], app)).status).toBe(200)
  })

  test('gets at most sixteen concurrent calls, and other providers’ payments don’t wait for them', async () => {
    const held: (() => void)[] = []
    const { promise, resolve } = Promise.withResolvers<void>()
    hook.state.decide = (_, response) => {
      held.push(() => response.writeHead(200, { 'content-type': 'application/json' }).end('{"accept":true}'))
      if (held.length === 16) resolve()
    }
    const app = fresh()
    const bodies = await Promise.all(
      Array.from({ length: 17 }, async () => signedBody(gateway, shop, await gateway.buyer(1_000_000n))),
    )
    const open = bodies.slice(1).map((json) => verify(json, app))
    await promise
    expect((await verify(bodies[0], app)).body.code).toBe('decision_unavailable')
    const paid = await verify(await signedBody(gateway, other, await gateway.buyer(1_000_000n)), app)
    expect(paid.status).toBe(200)
    for (const answer of held) answer()
    expect((await Promise.all(open)).map(({ status }) => status)).toEqual(Array(16).fill(200))
  })
})

describe('a decision', () => {
  test('is cached for as long as the hook says, only for its payer and endpoint', async () => {
    const [buyer, another] = [await gateway.buyer(1_000_000n), await gateway.buyer(1_000_000n)]
    hook.state.decide = () => ({ accept: true, cacheSeconds: 60 })
    const app = fresh()
    for (const payer of [buyer, buyer, another, buyer])
      expect((await verify(await signedBody(gateway, shop, payer), app)).status).toBe(200)
    expect(hook.asked().map(({ payer }) => payer)).toEqual(
      [buyer, another].map(({ address }) => address.toLowerCase()),
    )
    // After the hook is registered again, it decides again.
    await register(shop, { headers: ['x-api-key'] })
    gateway.setNow(Date.now() + 3_000)
    expect((await verify(await signedBody(gateway, shop, buyer), app)).status).toBe(200)
    expect(hook.asked()).toHaveLength(3)
  })
})

test('the middleware passes a refusal on to the buyer, and serves nothing', async () => {
  const app = fresh()
  const buyer = await gateway.buyer(1_000_000n)
  hook.state.decide = () => ({ refuse: 'Not you', code: 'list' })
  const gate = createGate({
    gatewayUrl: gateway.settings.issuer,
    providerId: shop.providerId,
    pricing: '$0.05',
    fetch: (url, init) => app.request(String(url), init) as Promise<Response>,
  } as Parameters<typeof createGate>[0])
  const { macaroon, payloads } = await signedBody(gateway, shop, buyer)
  const decision = await gate.check({
    method: 'GET',
    url: shop.url,
    authorization: encodeAuthorizationHeader({ macaroon, payloads }),
  })
  if (decision.kind !== 'answer') throw new Error('Expected an answer')
  expect([decision.answer.status, JSON.parse(decision.answer.body as string)]).toMatchObject([
    403,
    { code: 'payment_declined', detail: 'Not you', reason: 'list' },
  ])
})
