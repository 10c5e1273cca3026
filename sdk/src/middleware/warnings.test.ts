import { serve as serveApp } from '@hono/node-server'
import { afterAll, afterEach, beforeAll, describe, expect, test, vi } from 'vitest'
import { call, openShop, type Shop, startGateway, type TestGateway } from '../../../test/support/gateway.ts'
import { closedPort, serve } from '../../test/serve.ts'
import { authorization } from '../../test/signedPayment.ts'
import { createGate, type GateOptions } from './gate.ts'
import type { GatewayAnswer } from './gatewayClient.ts'
import { createWarnings } from './warnings.ts'

let gateway: TestGateway
let shop: Shop
let other: Shop
let disabled: Shop
let gatewayUrl: string
let server: ReturnType<typeof serveApp>

beforeAll(async () => {
  gateway = await startGateway()
  ;[shop, other, disabled] = [
    await openShop(gateway.app),
    await openShop(gateway.app),
    await openShop(gateway.app),
  ]
  const { status } = await call(
    gateway.app,
    'PATCH',
    `/providers/${disabled.providerId}/endpoints/${disabled.endpointId}`,
    { key: disabled.key, headers: { 'if-match': '*' }, json: { disabled: true } },
  )
  expect(status).toBe(200)
  server = serveApp({ fetch: gateway.app.fetch, hostname: '127.0.0.1', port: 0 })
  await new Promise((resolve) => server.once('listening', resolve))
  const address = server.address()
  gatewayUrl = `http://127.0.0.1:${typeof address === 'object' && address ? address.port : 0}`
})
afterAll(async () => {
  server.close()
  await gateway.close()
})
afterEach(() => {
  vi.unstubAllEnvs()
  vi.useRealTimers()
})

const request = { method: 'GET', url: 'https://api.example/forecast?city=1', authorization: undefined }

/** Correct options. Each row of the table changes some of them. */
const right = (): GateOptions => ({
  gatewayUrl,
  providerId: shop.providerId,
  endpointId: shop.endpointId,
  apiKey: shop.key,
  pricing: { usdcPerUnit: '0.05' },
  publicUrl: 'https://api.example',
})

const html = (status: number, headers = {}) =>
  serve((_, response) => {
    response.writeHead(status, { 'content-type': 'text/html', ...headers }).end('<h1>Hello</h1>')
  })

type Row = [
  name: string,
  wrong: () => Partial<GateOptions> | Promise<Partial<GateOptions>>,
  code: string,
  advice: RegExp,
]

describe('reports problems to the provider', () => {
  test.each<Row>([
    [
      'the gateway is down',
      async () => ({ gatewayUrl: await closedPort() }),
      'gateway_unreachable',
      /that the gateway is running/,
    ],
    [
      'the gateway hangs',
      async () => ({ gatewayUrl: await serve(() => {}), timeout: 500 }),
      'gateway_silent',
      /check gatewayUrl/,
    ],
    [
      'gatewayUrl names a host that does not exist',
      () => ({ gatewayUrl: 'http://gateway.invalid' }),
      'gateway_silent',
      /check gatewayUrl/,
    ],
    [
      'the proxy can’t reach the gateway',
      async () => ({ gatewayUrl: await html(502) }),
      'gateway_silent',
      /status 502/,
    ],
    [
      'the server redirects to another host',
      async () => ({ gatewayUrl: await html(301, { location: 'https://a.example' }) }),
      'gateway_redirects',
      /gatewayUrl/,
    ],
    [
      'gatewayUrl is a web site',
      async () => ({ gatewayUrl: await html(404) }),
      'not_a_gateway',
      /check gatewayUrl/,
    ],
    [
      'gatewayUrl is a page',
      async () => ({ gatewayUrl: await html(200) }),
      'not_a_gateway',
      /check gatewayUrl/,
    ],
    [
      'gatewayUrl contains an extra path',
      () => ({ gatewayUrl: `${gatewayUrl}/v1` }),
      'not_found',
      /PUBLIC_URL/,
    ],
    ['providerId is malformed', () => ({ providerId: 'prov_mine' }), 'unknown_provider', /providerId/],
    [
      'providerId is unknown',
      () => ({ providerId: `prov_${'9'.repeat(32)}` }),
      'unknown_provider',
      /check providerId/,
    ],
    ['endpointId is malformed', () => ({ endpointId: 'ep_mine' }), 'unknown_endpoint', /endpointId/],
    [
      'endpointId is unknown',
      () => ({ endpointId: `ep_${'9'.repeat(32)}` }),
      'unknown_endpoint',
      /endpointId/,
    ],
    [
      "endpointId is another provider's",
      () => ({ endpointId: other.endpointId }),
      'unknown_endpoint',
      /endpointId/,
    ],
    [
      'the path is not registered',
      () => ({ endpointId: '', basePath: '/api' }),
      'unknown_endpoint',
      /basePath.*GET \/forecast/,
    ],
    [
      'apiKey is unknown',
      () => ({ apiKey: `tk_${'9'.repeat(32)}_${'a'.repeat(43)}` }),
      'unauthorized',
      /check apiKey/,
    ],
    [
      "apiKey is another provider's",
      () => ({ apiKey: other.key, pricing: { usdcPerUnit: '0.01' } }),
      'price_below_registered',
      /this provider's apiKey.*0\.05/,
    ],
    [
      'the price is below the registered price',
      () => ({ apiKey: undefined, pricing: { usdcPerUnit: '0.01' } }),
      'price_below_registered',
      /raise pricing.*0\.05/,
    ],
    [
      'ownWallets lacks the registered wallet',
      () => ({ ownWallets: [other.wallet] }),
      'payee_mismatch',
      /ownWallets/,
    ],
    [
      'the endpoint has no wallet on the configured network',
      () => ({ network: 'base' }),
      'network_not_served',
      /check network/,
    ],
    [
      'the endpoint is disabled',
      () => ({ providerId: disabled.providerId, endpointId: disabled.endpointId, apiKey: disabled.key }),
      'endpoint_disabled',
      /enable it/,
    ],
  ])('error: reports that %s', async (_, wrong, code, advice) => {
    const warn = vi.fn()
    const options = { ...right(), ...(await wrong()), warn }
    const gate = createGate(options)
    for (let i = 0; i < 3; i++) expect(await gate.check(request)).toMatchObject({ kind: 'answer' })
    expect(warn.mock.calls).toHaveLength(1)
    const [[line]] = warn.mock.calls as [[string]]
    expect(line).toMatch(advice)
    expect(line).toMatch(new RegExp(`^.tollkeeper. ${code}: `))
    expect(line).toContain(`[gateway ${options.gatewayUrl}, provider ${options.providerId}]`)
    for (const secret of [options.apiKey, shop.key, other.key]) if (secret) expect(line).not.toContain(secret)
    expect(line).not.toMatch(/[\r\n]/)
  })

  test('default: reports nothing if the options are right, even if a buyer presents an invalid payment', async () => {
    const warn = vi.fn()
    const gate = createGate({ ...right(), warn })
    expect(await gate.check(request)).toMatchObject({ answer: { status: 402 } })
    expect(await gate.check({ ...request, authorization })).toMatchObject({ answer: { status: 402 } })
    expect(await gate.check({ ...request, authorization: 'x402 mock:mock' })).toMatchObject({
      kind: 'answer',
    })
    expect(await gate.check({ ...request, authorization: 'x402 ?' })).toMatchObject({ kind: 'answer' })
    expect(warn).not.toHaveBeenCalled()
  })

  test('error: reports a problem that the gateway finds when it verifies a payment', async () => {
    const warn = vi.fn()
    const gate = createGate({ ...right(), providerId: `prov_${'9'.repeat(32)}`, warn })
    expect(await gate.check({ ...request, authorization })).toMatchObject({ kind: 'answer' })
    const down = createGate({ ...right(), gatewayUrl: await closedPort(), warn })
    expect(await down.check({ ...request, authorization })).toMatchObject({ answer: { status: 503 } })
    expect(warn.mock.calls.at(-1)?.[0]).toMatch(/gateway_unreachable/)
  })

  test('error: reports a payment that could not be voided because the API key is missing or wrong', async () => {
    const payment = {
      verified: true as const,
      receipt: '',
      paymentId: `pay_${'1'.repeat(32)}`,
      charge: async () => false,
    }
    const served = { payment, headers: {} }
    const warn = vi.fn()
    expect(await createGate({ ...right(), apiKey: undefined, warn }).void(served)).toBe(false)
    expect(await createGate({ ...right(), warn }).void(served)).toBe(false)
    expect(await createGate({ ...right(), apiKey: 'tk_wrong', warn }).void(served)).toBe(false)
    expect(warn.mock.calls.map(([line]) => String(line).split(': ')[0])).toEqual([
      '[tollkeeper] no_api_key',
      '[tollkeeper] unknown_payment',
      '[tollkeeper] unauthorized',
    ])
  })

  test('error: reports mock mode in production', async () => {
    const warn = vi.fn()
    createGate({ ...right(), mockPayments: true, warn })
    expect(warn).not.toHaveBeenCalled()
    vi.stubEnv('NODE_ENV', 'production')
    createGate({ ...right(), mockPayments: true, warn })
    expect(warn.mock.calls).toEqual([[expect.stringContaining('mock_payments')]])
  })
})

describe('a warning', () => {
  const answer = (status: number, body: unknown): GatewayAnswer => ({
    status,
    body,
    text: '',
    headers: new Headers(),
  })
  const at = { gatewayUrl: 'https://user:secret@gateway.example/', providerId: 'prov_1' }

  test('default: is logged with console.warn', () => {
    const warn = vi.spyOn(console, 'warn').mockImplementation(() => {})
    createWarnings(at).tell('unauthorized')
    expect(warn.mock.calls).toEqual([
      [
        expect.stringMatching(
          /^\[tollkeeper\] unauthorized: .* \[gateway https:\/\/gateway\.example, provider prov_1\]$/,
        ),
      ],
    ])
    warn.mockRestore()
  })

  test('behavior: is reported once for each code, and again after an hour', () => {
    vi.useFakeTimers()
    const warn = vi.fn()
    const warnings = createWarnings({ ...at, warn })
    for (let i = 0; i < 5; i++) {
      warnings.tell('unauthorized')
      warnings.tell('unknown_provider')
    }
    expect(warn).toHaveBeenCalledTimes(2)
    vi.advanceTimersByTime(3_599_000)
    warnings.tell('unauthorized')
    expect(warn).toHaveBeenCalledTimes(2)
    vi.advanceTimersByTime(1_001)
    warnings.tell('unauthorized')
    expect(warn).toHaveBeenCalledTimes(3)
  })

  test('behavior: is a single line without secrets, even if the gateway’s response contains them', () => {
    const warn = vi.fn()
    const warnings = createWarnings({ ...at, apiKey: 'tk_secret', warn })
    const detail = `the key tk_secret\nERROR forged\u2028\u001b[31m ${'x'.repeat(1000)}`
    warnings.explain(answer(404, { code: 'unknown_provider', detail }))
    const [[line]] = warn.mock.calls as [[string]]
    for (const forbidden of ['secret', '\n', '\u2028', '\u001b']) expect(line).not.toContain(forbidden)
    expect(line.length).toBeLessThan(500)
  })

  test('behavior: is not reported for temporary problems or problems of the buyer', () => {
    const warn = vi.fn()
    const warnings = createWarnings({ ...at, warn })
    for (const [status, code] of [
      [402, 'insufficient_balance'],
      [409, 'payment_replayed'],
      [503, 'overloaded'],
      [503, 'token_paused'],
    ] as const)
      warnings.explain(answer(status, { code }))
    expect(warn).not.toHaveBeenCalled()
    // A refusal without specific advice is reported with its code, or with its status if the code is unknown.
    warnings.explain(answer(403, { code: 'registration_closed' }))
    warnings.explain(answer(401, { code: 'made_up' }))
    expect(warn.mock.calls.map(([line]) => String(line).split(': ')[0])).toEqual([
      '[tollkeeper] registration_closed',
      '[tollkeeper] status_401',
    ])
  })

  test('behavior: does not stop a sale if the listener throws', async () => {
    const warn = () => {
      throw new Error('full')
    }
    const gate = createGate({ ...right(), gatewayUrl: await closedPort(), warn })
    expect(await gate.check(request)).toMatchObject({ answer: { status: 503 } })
  })
})
