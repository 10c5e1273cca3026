import { describe, expect, test, vi } from 'vitest'
import { challengeFor } from '../../test/playProvider.ts'
import { readBody, serve } from '../../test/serve.ts'
import { mockOptions, payload } from '../../test/signedPayment.ts'
import { type AcceptDecision, parseAcceptDecision } from '../protocol/acceptDecision.ts'
import { encodeAuthorizationHeader } from '../protocol/authorizationHeader.ts'
import { mintMacaroon } from '../protocol/macaroon.ts'
import { parsePayload } from '../protocol/payload.ts'
import type { AcceptRequest, BeforeAccept } from './beforeAccept.ts'
import type { GateDecision } from './decision.ts'
import { requirePayment } from './fetch.ts'
import { createGate, type GateOptions } from './gate.ts'

// These tests use a simulated gateway. They show what the middleware does after the seller's decision. api/payments/verification/acceptHook.test.ts
// shows that the real gateway applies a decision to the payer whose signature it has verified.

const url = 'https://api.example/weather'
const { from, value, nonce } = parsePayload(payload)
const challenge = challengeFor(url)
const { endpointId } = challenge

function authorizationOf(text: string, n = 0): string {
  const macaroon = mintMacaroon({
    secret: { kid: 'one', key: new Uint8Array(32) },
    terms: {
      requestId: `req_${String(n).padStart(32, '0')}`,
      payTo: challenge.accepts[0].payTo,
      feePayTo: challenge.accepts[1].payTo,
      amount: 47_500n,
      feeAmount: 2_500n,
      asset: challenge.accepts[0].asset,
      mintedAt: 1_800_000_000,
      chainId: 8453,
    },
    caveats: { providerId: 'prov_1', endpointId, expiry: 1_800_000_300 },
    hmac: () => new Uint8Array(32),
  })
  return encodeAuthorizationHeader({ macaroon, payloads: [text] as never })
}

const authorization = authorizationOf(payload)

/** Starts a gateway that accepts every payment until a test changes `state.answer`, and a gate with the given hook. */
async function open(beforeAccept: BeforeAccept, more: Partial<GateOptions> = {}) {
  const asked: { path: string | undefined; pricing: unknown }[] = []
  const state = {
    answer: { status: 200, body: { verified: true, receipt: 'a.b.c', paymentId: 'pay_1' } as object },
  }
  const gatewayUrl = await serve(async (request, response) => {
    const { pricing } = JSON.parse(await readBody(request)) as { pricing?: unknown }
    asked.push({ path: request.url, pricing })
    const { status, body } = request.url === '/challenge' ? { status: 200, body: challenge } : state.answer
    response.writeHead(status, { 'content-type': 'application/json' }).end(JSON.stringify(body))
  })
  const warned: string[] = []
  const hook = vi.fn(beforeAccept)
  const options = {
    gatewayUrl,
    providerId: 'prov_1',
    pricing: '$0.05',
    beforeAccept: hook,
    warn: (message: string) => warned.push(message),
    ...more,
  }
  return { gate: createGate(options), options, asked, state, warned, hook }
}

function problemOf(decision: GateDecision) {
  if (decision.kind !== 'answer') throw new Error(`Expected an answer, got ${decision.kind}`)
  const { status, headers, body } = decision.answer
  return { status, retryAfter: headers['Retry-After'], ...(JSON.parse(body) as Record<string, unknown>) }
}

const unpaid = { method: 'GET', url }
const paid = { ...unpaid, authorization, readBody: null }

describe('the hook', () => {
  test('receives no payer before a 402, but receives payer, amount and network before a payment is verified', async () => {
    const questions: AcceptRequest[] = []
    const { gate } = await open((question) => {
      questions.push(question)
      return { accept: true }
    })
    const headers = { get: (name: string) => (name === 'x-api-key' ? 'gold' : null) }
    expect(problemOf(await gate.check({ ...unpaid, headers })).status).toBe(402)
    expect((await gate.check({ ...paid, headers })).kind).toBe('serve')
    const common = { endpoint: endpointId, network: 'base', request: { method: 'GET', url, headers } }
    expect(questions).toEqual([
      { payer: undefined, payment: undefined, amount: 50_000n, ...common },
      { payer: from, payment: `${from}:${nonce}`, amount: value, ...common },
    ])
  })

  test('is also called in mock mode', async () => {
    const gate = createGate({
      ...mockOptions,
      beforeAccept: ({ payer }) => (payer === undefined ? { accept: true } : { refuse: 'no' }),
    })
    expect(problemOf(await gate.check(unpaid)).status).toBe(402)
    const presented = await gate.check({ ...unpaid, authorization: 'x402 mock:mock' })
    expect(problemOf(presented).status).toBe(403)
  })
})

describe('a refusal', () => {
  test('responds with 403 and the reason, and never sends the payment to the gateway', async () => {
    const { gate, asked } = await open(({ payer }) =>
      payer === from ? { refuse: 'Not sold\r\nto you', code: 'sanctioned' } : { accept: true },
    )
    await gate.check(unpaid)
    expect(problemOf(await gate.check(paid))).toMatchObject({
      status: 403,
      code: 'payment_declined',
      detail: 'Not sold to you',
      reason: 'sanctioned',
    })
    expect(asked.every(({ path }) => path === '/challenge')).toBe(true)
  })

  test('is not remembered, because the seller may accept the payment later', async () => {
    let isOpen = false
    const { gate, hook } = await open(() => (isOpen ? { accept: true } : { refuse: 'closed' }))
    expect(problemOf(await gate.check(paid)).status).toBe(403)
    isOpen = true
    expect((await gate.check(paid)).kind).toBe('serve')
    expect(hook).toHaveBeenCalledTimes(2)
  })
})

describe('a free request', () => {
  test('is served without a payment, and its response has the payment status free', async () => {
    const { options, asked } = await open(() => ({ free: true }))
    const served = requirePayment(options)((_, payment) => Response.json(payment))
    const response = await served(new Request(url, { headers: { authorization } }))
    expect(response.status).toBe(200)
    expect(await response.json()).toEqual({ verified: true, free: true, receipt: '', paymentId: '' })
    expect(response.headers.get('service-payment-status')).toBe('free')
    for (const name of ['service-payment-id', 'service-receipt'])
      expect(response.headers.has(name)).toBe(false)
    expect(asked.filter(({ path }) => path !== '/challenge')).toEqual([])
  })

  test('causes no void if its handler fails', async () => {
    const { options, asked } = await open(() => ({ free: true }), { apiKey: 'tk_1' })
    const served = requirePayment(options)(() => new Response(null, { status: 500 }))
    const response = await served(new Request(url))
    expect([response.status, response.headers.get('service-payment-status')]).toEqual([500, 'free'])
    expect(asked.every(({ path }) => path === '/challenge')).toBe(true)
  })

  test('causes a new call of the hook each time, even if the same payment is presented repeatedly', async () => {
    let left = 2
    const { gate, asked } = await open(() => (left-- > 0 ? { free: true } : { accept: true }))
    const shown = await Promise.all([gate.check(paid), gate.check(paid), gate.check(paid)])
    const payments = shown.map((one) => one.kind === 'serve' && one.payment.free === true)
    expect(payments.filter(Boolean)).toHaveLength(2)
    expect(asked.filter(({ path }) => path === '/verify')).toHaveLength(1)
  })
})

describe('a price that the hook returns', () => {
  test('replaces the price in the 402 and the price that the payment is checked against', async () => {
    const { gate, asked } = await open(({ request }) =>
      request.headers.get('x-tier') ? { price: '0.01' } : { accept: true },
    )
    const headers = { get: () => 'gold' }
    for (const [n, more] of [{}, { headers }].entries()) {
      await gate.check({ ...unpaid, ...more })
      await gate.check({ ...paid, authorization: authorizationOf(payload, n), ...more })
    }
    const prices = asked.map(({ path, pricing }) => [path, (pricing as { usdcPerUnit: string }).usdcPerUnit])
    expect(prices.slice(-2)).toEqual([
      ['/challenge', '0.01'],
      ['/verify', '0.01'],
    ])
    expect(prices).toContainEqual(['/verify', '0.05'])
  })
})

describe('a hook that fails', () => {
  const failures: [string, BeforeAccept, number?][] = [
    ['throws', () => Promise.reject(new Error('list is down'))],
    ['never resolves', () => new Promise(() => {}), 50],
    ['returns nothing', (() => undefined) as never],
    ['returns two decisions', (() => ({ accept: true, refuse: 'no' })) as never],
    ['returns accept: false', (() => ({ accept: false })) as never],
    ['returns a negative price', () => ({ price: '-1' })],
    ['returns a price of 10^30', () => ({ price: 1e30 })],
    ['returns a price of 0', () => ({ price: 0 })],
  ]

  test.each(failures)('sells nothing if it %s', async (_, beforeAccept, hookTimeout) => {
    const { gate, asked, warned } = await open(beforeAccept, hookTimeout ? { hookTimeout } : {})
    for (const request of [unpaid, paid])
      expect(problemOf(await gate.check(request))).toMatchObject({
        status: 503,
        code: 'decision_unavailable',
        retryAfter: '1',
      })
    expect(asked.filter(({ path }) => path === '/verify')).toEqual([])
    expect(warned).toEqual([expect.stringContaining('hook_failed')])
  })

  test('sells at the normal price if onHookFailure is accept', async () => {
    const { gate } = await open(() => Promise.reject(new Error('down')), { onHookFailure: 'accept' })
    expect(problemOf(await gate.check(unpaid)).status).toBe(402)
    expect((await gate.check(paid)).kind).toBe('serve')
  })
})

describe('a presented payment', () => {
  test('causes one call of the hook, even if it is presented again after the quota was used up', async () => {
    let left = 1
    const { gate, hook } = await open(() => (left-- > 0 ? { accept: true } : { refuse: 'no quota' }))
    const first = await gate.check(paid)
    if (first.kind !== 'serve') throw new Error('Expected to serve')
    await first.keep?.keep({ status: 200, headers: [], body: new TextEncoder().encode('sunny') })
    expect((await gate.check(paid)).kind).toBe('again')
    expect(hook).toHaveBeenCalledTimes(1)
  })

  test('causes no second call of the hook if it is presented again because the gateway’s response was lost', async () => {
    let left = 1
    const { gate, hook, state } = await open(() => (left-- > 0 ? { accept: true } : { refuse: 'no quota' }), {
      timeout: 400,
    })
    const { answer } = state
    state.answer = { status: 500, body: {} }
    expect(problemOf(await gate.check(paid)).status).toBe(503)
    state.answer = answer
    expect((await gate.check(paid)).kind).toBe('serve')
    expect(hook).toHaveBeenCalledTimes(1)
  })

  test('causes a new call of the hook if it is presented for another request', async () => {
    const { gate, hook } = await open(({ request }) =>
      request.url === url ? { accept: true } : { refuse: 'elsewhere' },
    )
    await gate.check({ ...paid, readBody: undefined as never })
    const elsewhere = await gate.check({ ...paid, url: `${url}/other`, readBody: undefined as never })
    expect(problemOf(elsewhere).status).toBe(403)
    expect(hook).toHaveBeenCalledTimes(2)
  })

  test('is not sent to the hook if it is malformed', async () => {
    const { gate, hook } = await open(() => ({ accept: true }))
    const forged = encodeAuthorizationHeader({ macaroon: 'AgEA', payloads: [payload] as never })
    expect(problemOf(await gate.check({ ...paid, authorization: forged }))).toMatchObject({
      status: 402,
      code: 'macaroon_invalid',
    })
    expect(hook.mock.calls.map(([{ payer }]) => payer)).toEqual([undefined])
  })
})

test('rejects a hook without a price', () => {
  expect(() =>
    createGate({
      gatewayUrl: 'https://gateway.example',
      providerId: 'prov_1',
      beforeAccept: () => ({ free: true }),
    }),
  ).toThrow('beforeAccept needs pricing')
})

test.each<[unknown, AcceptDecision | object]>([
  [{ accept: true, cacheSeconds: 5 }, { kind: 'accept' }],
  [{ free: true }, { kind: 'free' }],
  [{ price: '$0.01' }, { kind: 'price', price: 10_000n }],
  [{ refuse: '' }, { kind: 'refuse', reason: 'Seller declined this request' }],
  [{ refuse: 'x'.repeat(1_000) }, { kind: 'refuse', reason: 'x'.repeat(200) }],
])('reads the decision %j', (given, expected) => {
  expect(parseAcceptDecision(given)).toEqual(expected)
})

test.each([
  {},
  null,
  'accept',
  [],
  { free: 1 },
  { refuse: true },
  { refuse: 'x', code: 'a b' },
  { price: {} },
])('rejects the decision %j', (given) => {
  expect(() => parseAcceptDecision(given)).toThrow(expect.objectContaining({ code: 'invalid_field' }))
})
