import type { ServerResponse } from 'node:http'
import { describe, expect, onTestFinished, test, vi } from 'vitest'
import { closedPort, readBody, serve } from '../../test/serve.ts'
import { authorization, payloads, sellerOptions } from '../../test/signedPayment.ts'
import { verifyReceipt } from '../audit/verifyReceipt.ts'
import { parseChallenge } from '../protocol/challenge.ts'
import { defineNetwork, type NetworkDefinition, removeNetwork } from '../protocol/networkDefinition.ts'
import { networks } from '../protocol/networks.ts'
import { decodeReceipt, zeroHash } from '../protocol/receipt.ts'
import type { GateDecision } from './decision.ts'
import { createGate, type GateOptions } from './gate.ts'

// Tests mock mode and network failures, for which no gateway is needed. test/e2e tests the middleware with the real gateway.

const base: GateOptions = sellerOptions
const request = { method: 'GET', url: 'https://api.example/weather?city=1', authorization: undefined }

function answerOf(decision: GateDecision) {
  if (decision.kind !== 'answer') throw new Error('Expected an answer')
  return { ...decision.answer, body: JSON.parse(decision.answer.body) as Record<string, unknown> }
}

describe('mock mode', () => {
  const mock = { ...base, mockPayments: true, endpointId: `ep_${'2'.repeat(32)}` }

  test('default: serves a mock payment with a mock receipt', async () => {
    const decision = await createGate(mock).check({ ...request, authorization: 'x402 mock:mock' })
    if (decision.kind !== 'serve') throw new Error('Expected to serve')
    const { verified, receipt, paymentId } = decision.payment
    expect(verified).toBe(true)
    expect(decodeReceipt(receipt)).toMatchObject({
      paymentId,
      providerId: mock.providerId,
      endpointId: mock.endpointId,
      totalUsdc: '50000',
      providerUsdc: '47500',
      platformUsdc: '2500',
      tier: 'micropayment',
      effectiveRate: '0.05',
      transactionHash: zeroHash,
    })
    expect(paymentId).toContain('mock')
  })

  test('behavior: returns a challenge in the usual form, for which no client signs', async () => {
    const { status, headers, body } = answerOf(await createGate(mock).check(request))
    expect(status).toBe(402)
    expect(headers['Content-Type']).toBe('application/json')
    const challenge = parseChallenge(body)
    expect(challenge.accepts.map(({ maxAmountRequired }) => maxAmountRequired)).toEqual(['47500', '2500'])
    expect(challenge.accepts[0]).toMatchObject({ asset: `0x${'0'.repeat(40)}`, resource: request.url })
  })

  test('behavior: makes no network call', async () => {
    const fetch = vi.spyOn(globalThis, 'fetch')
    const gate = createGate(mock)
    await gate.check(request)
    const decision = await gate.check({ ...request, authorization: 'x402 mock:mock' })
    if (decision.kind === 'serve') expect(await gate.void(decision)).toBe(true)
    expect(fetch).not.toHaveBeenCalled()
    fetch.mockRestore()
  })

  test('behavior: returns a receipt that no key verifies', async () => {
    const decision = await createGate(mock).check({ ...request, authorization: 'x402 mock:mock' })
    if (decision.kind !== 'serve') throw new Error('Expected to serve')
    const verified = verifyReceipt(decision.payment.receipt, { keys: [] })
    await expect(verified).rejects.toMatchObject({ code: 'invalid_receipt' })
  })

  test('error: responds to real credentials with a challenge', async () => {
    expect(answerOf(await createGate(mock).check({ ...request, authorization })).status).toBe(402)
  })
})

describe('fails closed', () => {
  test.each([
    ['without authorization', undefined],
    ['with a payment', authorization],
    ['with mock credentials', 'x402 mock:mock'],
    ['with another scheme', 'Bearer abc'],
  ])('error: responds with 503 to a request %s if the gateway is unreachable', async (_, header) => {
    const gate = createGate({ ...base, gatewayUrl: await closedPort() })
    const { status, headers, body } = answerOf(await gate.check({ ...request, authorization: header }))
    expect({ status, body }).toMatchObject({
      status: 503,
      body: { code: 'dependency_unavailable', status: 503 },
    })
    expect(headers).toMatchObject({ 'Content-Type': 'application/problem+json', 'Retry-After': '1' })
  })

  test('error: responds with 503 if the gateway never responds', async () => {
    const gate = createGate({ ...base, gatewayUrl: await serve(() => {}), timeout: 200 })
    expect(answerOf(await gate.check(request)).status).toBe(503)
  })

  test('error: does not retry after the refusal of an overloaded gateway, because the gateway has not accepted the payment', async () => {
    let calls = 0
    const url = await serve((_, response) => {
      calls++
      response.writeHead(503, { 'content-type': 'application/problem+json' })
      response.end(JSON.stringify({ status: 503, code: 'overloaded' }))
    })
    const gate = createGate({ ...base, gatewayUrl: url, endpointId: 'ep_1', timeout: 10_000 })
    const { status, body } = answerOf(await gate.check({ ...request, authorization }))
    expect([status, body, calls]).toMatchObject([503, { code: 'overloaded' }, 1])
  })

  test('error: responds with 503 if another server responds instead of the gateway', async () => {
    const url = await serve((_, response) =>
      response.writeHead(200, { 'content-type': 'text/html' }).end('<h1>Hi</h1>'),
    )
    const gate = createGate({ ...base, gatewayUrl: url, endpointId: 'ep_1' })
    expect(answerOf(await gate.check(request)).status).toBe(503)
    expect(answerOf(await gate.check({ ...request, authorization })).status).toBe(503)
  })

  const accepted = { verified: true, receipt: 'a.b.c', paymentId: 'pay_1' }
  test.each([
    ['without `verified`', { ...accepted, verified: undefined }],
    ['with `verified: false`', { ...accepted, verified: false }],
    ['with `verified` as text', { ...accepted, verified: 'true' }],
    ['without a receipt', { ...accepted, receipt: undefined }],
    ['without a payment id', { ...accepted, paymentId: undefined }],
  ])('error: does not serve if the gateway responds with 200 %s', async (_, body) => {
    const url = await serve((_, response) => response.end(JSON.stringify(body)))
    const gate = createGate({ ...base, gatewayUrl: url, endpointId: 'ep_1' })
    const answer = answerOf(await gate.check({ ...request, authorization }))
    expect(answer).toMatchObject({ status: 503, body: { code: 'dependency_unavailable' } })
  })

  test('default: serves if the gateway responds with 200 and `verified: true`', async () => {
    const url = await serve((_, response) => response.end(JSON.stringify(accepted)))
    const gate = createGate({ ...base, gatewayUrl: url, endpointId: 'ep_1' })
    const decision = await gate.check({ ...request, authorization })
    expect(decision).toMatchObject({ kind: 'serve', payment: accepted })
  })

  test('error: does not follow a redirect, because that would reveal the provider’s key', async () => {
    const keys: unknown[] = []
    const elsewhere = await serve((incoming, response) => {
      keys.push(incoming.headers.authorization)
      response.end()
    })
    const url = await serve((_, response) =>
      response.writeHead(307, { location: `${elsewhere}/challenge` }).end(),
    )
    const gate = createGate({ ...base, gatewayUrl: url, apiKey: 'tk_secret' })
    expect(answerOf(await gate.check(request)).status).toBe(503)
    expect(keys).toEqual([])
  })
})

test('behavior: sends all calls for one payment with the same Idempotency-Key, and calls for another payment with another key', async () => {
  const keys: unknown[] = []
  const bodies = new Set<string>()
  const url = await serve(async (incoming, response) => {
    keys.push(incoming.headers['idempotency-key'])
    bodies.add(await readBody(incoming))
    if (keys.length % 3 === 0) response.writeHead(404).end()
    else incoming.socket.destroy()
  })
  const gate = createGate({ ...base, gatewayUrl: url, endpointId: 'ep_1', timeout: 60_000 })
  await gate.check({ ...request, authorization })
  await gate.check({ ...request, authorization })
  await gate.check({ ...request, authorization: authorization.replace('AgEA', 'AgEB') })
  const [first, other] = [keys[0], keys[6]]
  expect(keys).toEqual([...Array(6).fill(first), other, other, other])
  expect(first).not.toBe(other)
  expect(bodies.size).toBe(2)
  expect(JSON.parse([...bodies][0] ?? '')).toEqual({
    macaroon: 'AgEA',
    payloads,
    providerId: base.providerId,
    endpointId: 'ep_1',
    pricing: { usdcPerUnit: '0.05' },
  })
})

test('behavior: voids a payment that the gateway first refuses, and then accepts in response to an earlier call', async () => {
  const asked: [url: string | undefined, condition: string | undefined][] = []
  const held = Promise.withResolvers<ServerResponse>()
  let state: 'losing' | 'holding' | 'refusing' = 'losing'
  const url = await serve((incoming, response) => {
    asked.push([incoming.url, incoming.headers['if-match']])
    if (incoming.url?.endsWith('/void')) response.end('{}')
    else if (state === 'losing') incoming.socket.destroy()
    else if (state === 'holding') {
      state = 'refusing'
      held.resolve(response)
    } else response.writeHead(402).end('{"code":"tab_limit_exceeded"}')
  })
  const options = { ...base, gatewayUrl: url, endpointId: 'ep_1', apiKey: 'tk_1', warn: () => {} }
  const gate = createGate({ ...options, timeout: 1_500 })
  const works: Promise<unknown>[] = []
  const present = () => gate.check({ ...request, authorization }, (work) => works.push(work))
  expect(await present()).toMatchObject({ kind: 'answer', answer: { status: 503 } })
  state = 'holding'
  const answer = await held.promise
  await present()
  answer.end('{"verified":true,"receipt":"a.b.c","paymentId":"pay_1"}')
  await works[0]
  expect(asked.at(-1)).toEqual(['/payments/pay_1/void', undefined])
  // This call requests only the earlier response. It must not cause an acceptance: the buyer may have paid again, and would be charged twice.
  expect(asked).toContainEqual(['/verify', '*'])
})

test('behavior: reports no amount to the buyer if the response to a charge is lost, but reports the price if the charge is refused', async () => {
  const tab = { id: `tab_${'1'.repeat(32)}`, sequence: 1 }
  let isLost = true
  const url = await serve((incoming, response) => {
    if (incoming.url === '/verify')
      response.end(JSON.stringify({ verified: true, receipt: 'a.b.c', paymentId: 'pay_1', tab }))
    else if (isLost) incoming.socket.destroy()
    else response.writeHead(409).end('{"code":"tab_closed"}')
  })
  const options = { ...base, gatewayUrl: url, endpointId: 'ep_1', apiKey: 'tk_1', warn: () => {} }
  const gate = createGate({ ...options, timeout: 1_500 })
  const decide = () => gate.check({ ...request, authorization })
  for (const lost of [true, false]) {
    isLost = lost
    const decision = await decide()
    if (decision.kind !== 'serve') throw new Error('it is not served')
    expect(decision.headers['Service-Receipt']).toBe('a.b.c')
    expect(await decision.payment.charge('0.001')).toBe(false)
    expect(decision.headers).toEqual(lost ? {} : { 'Service-Receipt': 'a.b.c' })
  }
})

test('behavior: repeats a call with the same key after a 408, because the gateway may have accepted the payment', async () => {
  const keys: unknown[] = []
  const url = await serve((incoming, response) => {
    keys.push(incoming.headers['idempotency-key'])
    if (keys.length === 1) response.writeHead(408).end()
    else response.end('{"verified":true,"receipt":"a.b.c","paymentId":"pay_1"}')
  })
  const gate = createGate({ ...base, gatewayUrl: url, endpointId: 'ep_1', warn: () => {} })
  expect(await gate.check({ ...request, authorization })).toMatchObject({ kind: 'serve' })
  expect(keys).toEqual([keys[0], keys[0]])
})

test('behavior: forwards the gateway’s Retry-After', async () => {
  const limits = { 'retry-after': '7', 'ratelimit-limit': '60', 'ratelimit-remaining': '0' }
  const url = await serve((_, response) =>
    response.writeHead(429, { ...limits, 'x-other': 'kept back' }).end('{"code":"rate_limited"}'),
  )
  const gate = createGate({ ...base, gatewayUrl: url, endpointId: 'ep_1', warn: () => {} })
  const { status, headers } = answerOf(await gate.check({ ...request, authorization }))
  expect(status).toBe(429)
  expect(headers).toEqual({
    'Content-Type': 'application/problem+json',
    'Cache-Control': 'no-store',
    ...limits,
  })
})

test('behavior: states in the header Prefer for how long the middleware waits for the gateway’s response', async () => {
  let asked: unknown
  const url = await serve((incoming, response) => {
    asked = incoming.headers.prefer
    response.writeHead(404).end()
  })
  const waits: unknown[] = []
  for (const timeout of [undefined, 30_000, 3_900]) {
    const gate = createGate({ ...base, gatewayUrl: url, endpointId: 'ep_1', ...(timeout && { timeout }) })
    await gate.check({ ...request, authorization })
    waits.push(asked)
  }
  // Half of the timeout, which is 10 s by default, minus one second.
  expect(waits).toEqual(['wait=4', 'wait=14', 'wait=0'])
})

test('behavior: challenges and charges HEAD like GET', async () => {
  const asked: unknown[] = []
  const url = await serve(async (incoming, response) => {
    asked.push((JSON.parse(await readBody(incoming)) as { method?: string }).method)
    response.writeHead(404).end()
  })
  const gate = createGate({ ...base, gatewayUrl: url })
  for (const method of ['HEAD', 'PUT']) await gate.check({ ...request, method })
  expect(asked).toEqual(['GET', 'PUT'])
})

test.each([
  ['/api', undefined, 'https://api.example/api/weather?city=1'],
  ['/api/', 'https://shop.example', 'https://shop.example/api/weather?city=1'],
  ['', undefined, request.url],
])('args: with basePath %j and publicUrl %s, the resource is %s', async (basePath, publicUrl, expected) => {
  const gate = createGate({ ...base, mockPayments: true, basePath, ...(publicUrl && { publicUrl }) })
  const { accepts } = parseChallenge(answerOf(await gate.check(request)).body)
  expect(accepts[0].resource).toBe(expected)
})

test('error: rejects a basePath that is not a path', () => {
  for (const basePath of ['api', 'https://api.example', '/a?b']) {
    expect(() => createGate({ ...base, basePath })).toThrow(TypeError)
  }
})

test('args: uses publicUrl as the resource’s origin', async () => {
  const gate = createGate({ ...base, mockPayments: true, publicUrl: 'https://shop.example' })
  const { body } = answerOf(await gate.check({ ...request, url: 'http://10.0.0.7:3000/weather?city=1' }))
  expect(parseChallenge(body).accepts[0].resource).toBe('https://shop.example/weather?city=1')
})

test('error: rejects a malformed header without calling the gateway', async () => {
  const fetch = vi.spyOn(globalThis, 'fetch')
  const { status, body } = answerOf(await createGate(base).check({ ...request, authorization: 'x402 a' }))
  expect({ status, body }).toMatchObject({ status: 400, body: { code: 'invalid_authorization_header' } })
  expect(fetch).not.toHaveBeenCalled()
  fetch.mockRestore()
})

test.each([
  ['0.0000001', 'invalid_field'],
  ['free', 'invalid_field'],
  ['0', 'price_below_minimum'],
])('error: rejects a price of %s immediately', (usdcPerUnit, code) => {
  expect(() => createGate({ ...base, pricing: { usdcPerUnit } })).toThrow(expect.objectContaining({ code }))
})

test.each([
  ['gatewayUrl', { gatewayUrl: 'gateway.example' }],
  ['providerId', { providerId: '' }],
])('error: rejects an invalid %s', (name, change) => {
  expect(() => createGate({ ...base, ...change })).toThrow(new RegExp(`^${name}`))
})

describe('the network', () => {
  const definition: NetworkDefinition = {
    chainId: 7_654_322,
    usdc: '0x5afe5afe5afe5afe5afe5afe5afe5afe5afe5afe',
    eip712: { name: 'USDC', version: '2' },
    testnet: true,
    confirmations: 2,
    blockTimeMs: 500,
  }

  test.each([
    ['a name', () => 'acme-one'],
    ['the object that defineNetwork returned', () => defineNetwork('acme-one', definition)],
  ])('given as %s is sent to the gateway as a name', async (_, network) => {
    const asked: unknown[] = []
    const fetch = async (_url: string, { body }: RequestInit) => {
      asked.push(JSON.parse(String(body)))
      return Response.json({}, { status: 503 })
    }
    const gate = createGate({ ...base, network: network(), fetch })
    onTestFinished(() => removeNetwork({ name: 'acme-one' }))
    await gate.check(request)
    expect(asked[0]).toMatchObject({ network: 'acme-one' })
  })

  test('must be the object that defineNetwork returned, not a copy', () => {
    const network = { ...networks.base, usdc: definition.usdc }
    expect(() => createGate({ ...base, network })).toThrow(
      expect.objectContaining({ code: 'unknown_network' }),
    )
  })
})

test('behavior: looks up the endpoint again for the next payment if the gateway rejects the endpoint', async () => {
  const asked: string[] = []
  const challenge = answerOf(
    await createGate({ ...base, mockPayments: true, endpointId: `ep_${'2'.repeat(32)}` }).check(request),
  ).body
  const fetch = async (url: string | URL | Request) => {
    const { pathname } = new URL(String(url))
    asked.push(pathname)
    return pathname === '/challenge'
      ? Response.json(challenge)
      : Response.json({ code: 'unknown_endpoint' }, { status: 404 })
  }
  const gate = createGate({ ...base, fetch, warn: () => {} })
  for (let i = 0; i < 2; i++) await gate.check({ ...request, authorization })
  expect(asked).toEqual(['/challenge', '/verify', '/challenge', '/verify'])
})

test('behavior: keeps a payment valid if it can’t be voided', async () => {
  const payment = { verified: true, receipt: '', paymentId: 'pay_1', charge: async () => false } as const
  const served = { payment, headers: {} }
  expect(await createGate(base).void(served)).toBe(false)
  expect(await createGate({ ...base, apiKey: 'tk_1', gatewayUrl: await closedPort() }).void(served)).toBe(
    false,
  )
})
