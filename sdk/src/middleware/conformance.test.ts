import { getRequestListener } from '@hono/node-server'
import express, { type ErrorRequestHandler } from 'express'
import fastify from 'fastify'
import { Context, type ExecutionContext, Hono } from 'hono'
import { describe, expect, test, vi } from 'vitest'
import tabs from '../../../test/vectors/tabs.json' with { type: 'json' }
import { closedPort, readBody, serve } from '../../test/serve.ts'
import { authorization, mockOptions as options, mockPaid as paid } from '../../test/signedPayment.ts'
import { decodeReceipt } from '../protocol/receipt.ts'
import { encodePaymentHeader } from '../protocol/x402.ts'
import { requirePayment as requireExpressPayment } from './express.ts'
import { requirePayment as requireFastifyPayment } from './fastify.ts'
import { requirePayment as requireFetchPayment } from './fetch.ts'
import { exposedHeaders, type GateOptions } from './gate.ts'
import { type PaymentVariables, requirePayment as requireHonoPayment } from './hono.ts'
import type { VerifiedPayment } from './verification.ts'

// Tests the common behavior of all middleware: one table of handlers runs with each framework over real connections. test/e2e shows payments through
// the real gateway.

type Answer = { status?: number; headers?: Record<string, string>; body?: string }

/** The number of calls by path, and the promise that the slow handlers await. */
const ran = new Map<string, number>()
let gateOfSlow: Promise<void> = Promise.resolve()

/** Handlers by path, independent of a framework. */
const handlers: Record<string, (payment: VerifiedPayment | undefined) => Answer | Promise<Answer>> = {
  '/weather': (payment) => ({
    headers: { 'Content-Type': 'application/json', 'X-Own': 'kept' },
    body: JSON.stringify({ payment }),
  }),
  '/cached': () => ({ headers: { 'Cache-Control': 'public, max-age=60, s-maxage=600' }, body: 'for all' }),
  '/secret': () => ({ headers: { 'Cache-Control': 'no-store' }, body: 'for one' }),
  '/empty': () => ({ status: 204 }),
  '/wrong': () => ({ status: 404, body: 'no such city' }),
  '/moved': () => ({ status: 302, headers: { Location: '/weather' } }),
  '/unavailable': () => ({ status: 503, headers: { 'X-Own': 'kept' }, body: '{"later":true}' }),
  '/metered': async (payment) => {
    const charged = [await payment?.charge('0.002'), await payment?.charge(0.0005)]
    return { headers: { 'Content-Type': 'application/json' }, body: JSON.stringify(charged) }
  },
  '/metered-in-vain': async (payment) => {
    await payment?.charge('0.002')
    return { status: 503 }
  },
  '/overcharges': async (payment) => ({ body: String(await payment?.charge('0.050001')) }),
  '/throws': () => {
    throw new Error('no weather')
  },
  '/counted': () => ({
    headers: { 'Content-Type': 'text/plain', 'X-Own': 'kept' },
    body: `served ${ran.get('/counted')}`,
  }),
  '/slow': async () => {
    await gateOfSlow
    return { body: `served ${ran.get('/slow')}` }
  },
  '/long': () => ({ body: 'x'.repeat(300_000) }),
}
const handle = async (path: string, payment: VerifiedPayment | undefined): Promise<Answer> => {
  const handler = handlers[path]
  if (!handler) throw new Error(`no handler for ${path}`)
  ran.set(path, (ran.get(path) ?? 0) + 1)
  return handler(payment)
}

const listenFetch = (fetch: (request: Request) => Response | Promise<Response>) =>
  serve(getRequestListener(fetch))

const frameworks: [name: string, start: (gate: GateOptions) => Promise<string>][] = [
  [
    'hono',
    (gate) => {
      const app = new Hono<{ Variables: PaymentVariables }>()
      app.onError((_, c) => c.text('failed', 500))
      app.all('*', requireHonoPayment(gate), async (c) => {
        const { status = 200, headers, body = null } = await handle(c.req.path, c.get('payment'))
        return new Response(body, { status, ...(headers && { headers }) })
      })
      return listenFetch((request) => app.fetch(request))
    },
  ],
  [
    'express',
    (gate) => {
      const app = express()
      app.use(requireExpressPayment(gate), async (request, response) => {
        const { status = 200, headers, body } = await handle(request.path, response.locals.payment)
        response.status(status).set(headers).end(body)
      })
      const quiet: ErrorRequestHandler = (_error, _request, response, _next) => {
        response.status(500).send('failed')
      }
      return serve(app.use(quiet))
    },
  ],
  [
    'fastify',
    async (gate) => {
      const app = fastify({ routerOptions: { ignoreTrailingSlash: true } })
      app.addHook('preHandler', requireFastifyPayment(gate))
      app.setErrorHandler((_error, _request, reply) => reply.code(500).send('failed'))
      // The handlers in the table read the stream themselves, or ignore it, so Fastify must not parse the body.
      app.removeAllContentTypeParsers()
      app.addContentTypeParser('*', (_request, payload, done) => done(null, payload))
      for (const path of Object.keys(handlers))
        app.all(path, async (request, reply) => {
          const { payment } = request as typeof request & { payment: VerifiedPayment }
          const { status = 200, headers = {}, body = '' } = await handle(path, payment)
          return reply.code(status).headers(headers).send(body)
        })
      await app.ready()
      return serve((request, response) => app.routing(request, response))
    },
  ],
  [
    'fetch',
    (gate) => {
      const answer = requireFetchPayment(gate)(async (request, payment) => {
        const { status = 200, headers, body = null } = await handle(new URL(request.url).pathname, payment)
        return new Response(body, { status, ...(headers && { headers }) })
      })
      return listenFetch((request) => answer(request).catch(() => new Response('failed', { status: 500 })))
    },
  ],
]

describe.each(frameworks)('%s', (name, start) => {
  test('default: serves a paid request with the payment’s headers', async () => {
    const response = await fetch(`${await start(options)}/weather`, paid)
    const { status, headers } = response
    const receipt = headers.get('service-receipt') ?? ''
    const { paymentId } = decodeReceipt(receipt) ?? {}
    expect(await response.json()).toEqual({ payment: { verified: true, receipt, paymentId } })
    expect([status, headers.get('x-own')]).toEqual([200, 'kept'])
    expect(headers.get('content-type')).toMatch(/^application\/json/)
    expect(headers.get('service-payment-id')).toBe(paymentId)
    expect(headers.get('service-payment-status')).toBe('verified')
  })

  test('behavior: responds with 402 and a challenge for the requested URL', async () => {
    const url = `${await start(options)}/weather?city=1`
    const response = await fetch(url)
    expect([response.status, response.headers.get('content-type')]).toEqual([402, 'application/json'])
    expect(response.headers.get('cache-control')).toBe('no-store')
    expect(await response.json()).toMatchObject({
      x402Version: 1,
      providerId: options.providerId,
      accepts: [{ resource: url }, {}],
    })
  })

  test('sends a browser the page exactly as the gate creates it', async () => {
    const url = `${await start(options)}/weather?city=1`
    const accept = 'text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8'
    const page = await fetch(url, { headers: { accept } })
    const { status, headers } = page
    expect([status, headers.get('content-type'), headers.get('vary'), headers.get('cache-control')]).toEqual([
      ...[402, 'text/html; charset=utf-8', 'Accept', 'no-store'],
    ])
    expect(headers.get('content-security-policy')).toMatch(/^default-src 'none';style-src 'sha256-/)
    expect(await page.text()).toMatch(/^<!doctype html>.*This costs 0\.05 USDC.*<\/html>\n$/s)
    const head = await fetch(url, { method: 'HEAD', headers: { accept } })
    expect([head.status, head.headers.get('content-type'), await head.text()]).toEqual([
      ...[402, 'text/html; charset=utf-8', ''],
    ])
  })

  test.each([
    ['/weather', 200, 'private'],
    ['/cached', 200, 'private, max-age=60'],
    ['/secret', 200, 'no-store'],
    ['/empty', 204, 'private'],
    ['/wrong', 404, 'private'],
    ['/moved', 302, 'private'],
  ])(
    'behavior: charges for a request for %s, and lets no shared cache keep the response',
    async (path, status, cacheControl) => {
      const { status: given, headers } = await fetch(`${await start(options)}${path}`, {
        ...paid,
        redirect: 'manual',
      })
      expect([given, headers.get('cache-control')]).toEqual([status, cacheControl])
      expect(headers.get('service-receipt')).not.toBeNull()
      expect(headers.get('service-payment-status')).toBe('verified')
    },
  )

  test('behavior: voids the payment if the handler responds with 5xx, reports the void, and sends no receipt', async () => {
    const response = await fetch(`${await start(options)}/unavailable`, paid)
    const { status, headers } = response
    expect([status, await response.text()]).toEqual([503, '{"later":true}'])
    expect([headers.get('x-own'), headers.get('cache-control')]).toEqual(['kept', 'private'])
    expect([headers.get('service-receipt'), headers.get('service-payment-status')]).toEqual([null, 'voided'])
    expect(headers.get('service-payment-id')).toMatch(/^pay_/)
  })

  test('behavior: voids the payment if the handler throws, and forwards the error', async () => {
    const gateway = await playGateway()
    const response = await fetch(`${await start(gateway.options)}/throws`, { headers: { authorization } })
    expect([response.status, await response.text()]).toEqual([500, 'failed'])
    expect(response.headers.get('service-receipt')).toBeNull()
    expect(gateway.calls).toEqual(['/verify', '/payments/pay_1/void'])
    // If a handler throws behind the fetch middleware, the runtime creates the response. The runtime doesn't know that the payment was voided.
    expect(response.headers.get('service-payment-status')).toBe(name === 'fetch' ? null : 'voided')
  })

  test('behavior: keeps a payment valid if the gateway does not void it', async () => {
    const gateway = await playGateway({ voids: false })
    const url = await start(gateway.options)
    const { status, headers } = await fetch(`${url}/unavailable`, { headers: { authorization } })
    expect([status, headers.get('service-receipt'), headers.get('service-payment-status')]).toEqual([
      ...[503, 'a.b.c', 'verified'],
    ])
  })

  test('behavior: lets a handler charge less than the price on a tab, and informs the buyer', async () => {
    const gateway = await playGateway({ tab })
    const { headers, status, ...response } = await get(`${await start(gateway.options)}/metered`, onTab)
    expect([status, await response.json()]).toEqual([200, [true, true]])
    const charge = `/tabs/${tab.id}/requests/3/charge`
    expect(gateway.calls).toEqual([
      '/verify',
      `${charge} {"amount":"0.002000"}`,
      `${charge} {"amount":"0.000500"}`,
    ])
    expect(headers.get('service-charged')).toBe('0.000500')
    expect(headers.get('service-payment-status')).toBe('verified')
    const settled = headers.get('payment-response') ?? ''
    expect(JSON.parse(atob(settled))).toEqual({ success: true, extra: { tab }, amount: '500' })
  })

  test('behavior: charges nothing for a failed request on a tab even if its handler charged an amount, and sends the void’s receipt', async () => {
    const gateway = await playGateway({ tab })
    const { headers, status } = await get(`${await start(gateway.options)}/metered-in-vain`, onTab)
    expect(gateway.calls.at(-1)).toBe(`/tabs/${tab.id}/requests/3/charge {"amount":"0.000000"}`)
    const names = ['service-payment-status', 'service-charged', 'service-receipt', 'payment-response']
    const said = names.map((header) => headers.get(header))
    expect([status, ...said.slice(0, -1)]).toEqual([503, 'voided', '0.000000', 'a.b.c'])
    expect(JSON.parse(atob(said.at(-1) ?? ''))).toEqual({ success: true, extra: { tab }, amount: '0' })
  })

  test('behavior: reports no charged amount if the gateway refuses the amount that a handler charges', async () => {
    const gateway = await playGateway({ tab, voids: false })
    const { headers, ...response } = await get(`${await start(gateway.options)}/metered`, onTab)
    expect(await response.json()).toEqual([false, false])
    expect(headers.get('service-charged')).toBeNull()
    expect(JSON.parse(atob(headers.get('payment-response') ?? ''))).toEqual({ success: true, extra: { tab } })
  })

  test('behavior: charges the whole price of a single payment, even if the handler charges less', async () => {
    const gateway = await playGateway()
    const response = await fetch(`${await start(gateway.options)}/metered`, { headers: { authorization } })
    expect(await response.json()).toEqual([false, false])
    expect([gateway.calls, response.headers.get('service-charged')]).toEqual([['/verify'], null])
  })

  test('behavior: in mock mode, a handler can charge any amount up to the price, but no more', async () => {
    const url = await start(options)
    const { headers, ...response } = await get(`${url}/metered`, paid.headers)
    expect([await response.json(), headers.get('service-charged')]).toEqual([[true, true], '0.000500'])
    expect(await (await fetch(`${url}/overcharges`, paid)).text()).toBe('false')
  })

  test('behavior: lets a page of another origin read all headers about its payment', async () => {
    const url = await start(options)
    const { headers } = await fetch(`${url}/weather`, paid)
    const exposed = exposedHeaders.map((header) => header.toLowerCase())
    const told = [...headers.keys()].filter((header) => /^(service|payment|x-payment)-/.test(header))
    expect(told.length).toBe(3)
    expect(exposed).toEqual(expect.arrayContaining(told))
  })

  describe('a payment that is presented again', () => {
    const again = async (url: string, path: string, init: RequestInit = {}) => {
      const response = await fetch(`${url}${path}`, { ...init, headers: { authorization, ...init.headers } })
      return { response, text: await response.text(), replayed: response.headers.get('idempotent-replayed') }
    }

    test('default: gets its response again, byte for byte, with its receipt', async () => {
      ran.clear()
      const gateway = await playGateway({ once: true })
      const url = await start(gateway.options)
      for (const path of ['/counted?city=1', '/counted?city=1']) await again(url, path)
      const { response, text, replayed } = await again(url, '/counted?city=1')
      expect([response.status, text, replayed]).toEqual([200, 'served 1', 'true'])
      const told = ['x-own', 'content-type', 'service-receipt', 'service-payment-id', 'cache-control']
      expect(told.map((header) => response.headers.get(header))).toEqual([
        ...['kept', expect.stringMatching(/^text\/plain/), 'a.b.c', 'pay_1', 'private'],
      ])
      expect([ran.get('/counted'), gateway.calls]).toEqual([1, ['/verify']])
    })

    test('behavior: gets no kept response for another URL, method or body', async () => {
      ran.clear()
      const gateway = await playGateway({ once: true })
      const url = await start(gateway.options)
      const post = (body: string) => again(url, '/counted', { method: 'POST', body })
      expect((await post('one')).text).toBe('served 1')
      for (const other of [
        await post('two'),
        await again(url, '/counted', { method: 'PUT', body: 'one' }),
        await again(url, '/counted?a=1', { method: 'POST', body: 'one' }),
        await again(url, '/counted'),
      ]) {
        expect([other.response.status, other.replayed]).toEqual([409, null])
        expect(JSON.parse(other.text)).toMatchObject({ code: 'payment_replayed' })
      }
      expect([(await post('one')).text, ran.get('/counted')]).toEqual(['served 1', 1])
    })

    test('behavior: waits for the response while the first request is still being served, even if the buyer has closed that request’s connection', async () => {
      ran.clear()
      const gateway = await playGateway({ once: true })
      const url = await start(gateway.options)
      let release = () => {}
      gateOfSlow = new Promise((resolve) => {
        release = resolve
      })
      const leaving = new AbortController()
      const gone = again(url, '/slow', { signal: leaving.signal }).catch(() => 'gone')
      await expect.poll(() => ran.get('/slow')).toBe(1)
      leaving.abort()
      expect(await gone).toBe('gone')
      const twins = Promise.all([again(url, '/slow'), again(url, '/slow')])
      release()
      expect((await twins).map(({ text, replayed }) => [text, replayed])).toEqual([
        ['served 1', 'true'],
        ['served 1', 'true'],
      ])
      expect(ran.get('/slow')).toBe(1)
    })

    test('behavior: gets 409 with Retry-After if it waits too long', async () => {
      ran.clear()
      const gateway = await playGateway({ once: true })
      const url = await start({ ...gateway.options, timeout: 1_000 })
      let release = () => {}
      gateOfSlow = new Promise((resolve) => {
        release = resolve
      })
      const first = again(url, '/slow')
      await expect.poll(() => ran.get('/slow')).toBe(1)
      const { response } = await again(url, '/slow')
      expect([response.status, response.headers.get('retry-after')]).toEqual([409, '1'])
      release()
      expect((await first).text).toBe('served 1')
      await expect.poll(async () => (await again(url, '/slow')).text).toBe('served 1')
    })

    test('behavior: is refused with the reason if the response failed or was too long to keep', async () => {
      const gateway = await playGateway({ once: true })
      const url = await start(gateway.options)
      expect((await again(url, '/unavailable')).response.headers.get('service-payment-status')).toBe('voided')
      expect((await again(url, '/unavailable')).response.status).toBe(409)
      expect(gateway.calls).toEqual(['/verify', '/payments/pay_1/void', '/verify'])
      const other = await start((await playGateway({ once: true })).options)
      expect((await again(other, '/long')).text.length).toBe(300_000)
      const { response, text } = await again(other, '/long')
      expect([response.status, response.headers.get('retry-after')]).toEqual([409, null])
      expect(JSON.parse(text).detail).toBe(
        "This payment's request was served, and can't be served again: its response was too long",
      )
    })

    test('args: is refused if the option answers is false, because no response is kept', async () => {
      const gateway = await playGateway({ once: true })
      const url = await start({ ...gateway.options, answers: false })
      const statuses = [await again(url, '/counted'), await again(url, '/counted')]
      expect(statuses.map(({ response }) => response.status)).toEqual([200, 409])
    })

    test('args: gets its response from a store after a restart and in another process, and the store can’t read the response', async () => {
      ran.clear()
      const kept = new Map<string, Uint8Array>()
      const store = {
        get: async (key: string) => kept.get(key),
        set: async (key: string, value: Uint8Array) => void kept.set(key, value),
      }
      const gateway = await playGateway({ once: true })
      const gate = { ...gateway.options, answers: { store, secret: 'a secret that is hard to guess' } }
      expect((await again(await start(gate), '/counted')).text).toBe('served 1')
      const answered = async (options: GateOptions) => again(await start(options), '/counted')
      await expect.poll(async () => (await answered(gate)).text).toBe('served 1')
      const stored = [...kept].flatMap(([key, value]) => [key, Buffer.from(value).toString('latin1')])
      expect([kept.size, stored.join().includes('served'), stored.join().includes('pay_1')]).toEqual([
        ...[1, false, false],
      ])
      const other = { store, secret: 'another secret of 16' }
      expect((await answered({ ...gate, answers: other })).response.status).toBe(409)
      // The store has changed an entry.
      for (const value of kept.values()) value[20] = (value[20] ?? 0) ^ 1
      expect((await answered(gate)).response.status).toBe(409)
      expect(ran.get('/counted')).toBe(1)
    })
  })

  test('error: responds with 503 if the gateway is unreachable', async () => {
    const url = await start({ ...options, mockPayments: false, gatewayUrl: await closedPort() })
    for (const init of [{}, paid, { headers: { authorization } }]) {
      const response = await fetch(`${url}/weather`, init)
      expect(response.status).toBe(503)
      expect(response.headers.get('content-type')).toBe('application/problem+json')
      expect(await response.text()).not.toContain('pay_')
    }
  })
})

test.each<[string, () => Promise<string>]>([
  [
    'hono',
    () => {
      const app = new Hono()
      app.use((c, next) => {
        c.header('Vary', 'Origin')
        return next()
      })
      app.get('*', requireHonoPayment(options), (c) => c.text('served'))
      return listenFetch((request) => app.fetch(request))
    },
  ],
  [
    'express',
    () => {
      const app = express()
      app.use((_request, response, next) => {
        response.vary('Origin')
        next()
      })
      return serve(app.use(requireExpressPayment(options)))
    },
  ],
  [
    'fastify',
    async () => {
      const app = fastify()
      app.addHook('onRequest', async (_request, reply) => void reply.header('Vary', 'Origin'))
      app.get('/', { preHandler: requireFastifyPayment(options) }, async () => 'served')
      await app.ready()
      return serve((request, response) => app.routing(request, response))
    },
  ],
])('%s keeps the Vary value of CORS and adds its own value', async (_, start) => {
  const { headers } = await fetch(await start())
  expect(headers.get('vary')).toBe('Origin, Accept')
})

test.each([
  [
    'hono',
    (gate: GateOptions) => {
      const app = new Hono().all('*', requireHonoPayment(gate), (c) => c.text('served'))
      return (request: Request, context: ExecutionContext) => app.fetch(request, {}, context)
    },
  ],
  [
    'fetch',
    (gate: GateOptions): ((request: Request, context: ExecutionContext) => Response | Promise<Response>) =>
      requireFetchPayment(gate)(() => new Response('served')),
  ],
])(
  'behavior: %s: keeps a runtime alive after the response until a lost payment is voided',
  async (_, create) => {
    const gateway = await playGateway()
    const works: Promise<unknown>[] = []
    const context = { waitUntil: (work: Promise<unknown>) => works.push(work) } as unknown as ExecutionContext
    gateway.state.isLosing = true
    const answer = create({ ...gateway.options, timeout: 1_000 })
    const request = new Request('https://api.example/weather', { headers: { authorization } })
    expect((await answer(request, context)).status).toBe(503)
    expect(works.length).toBe(1)
    gateway.state.isLosing = false
    await Promise.all(works)
    expect(gateway.calls.at(-1)).toBe('/payments/pay_1/void')
  },
)

test('behavior: does not read Hono’s execution context on Node, because that would throw', async () => {
  const asked = vi.spyOn(Context.prototype, 'executionCtx', 'get')
  try {
    const app = new Hono().all('*', requireHonoPayment(options), (c) => c.text('served'))
    const url = await serve(getRequestListener(app.fetch))
    expect((await fetch(url, paid)).status).toBe(200)
    expect(asked).not.toHaveBeenCalled()
  } finally {
    asked.mockRestore()
  }
})

test.each([
  ['utf8', 'grün €', true],
  ['latin1', 'gr\u00fcn', true],
  ['binary', '\u0089PNG\u00ff\u0000', true],
  ['utf16le', 'grün €', false],
  ['base64', 'R3LDvG4=', false],
] as const)(
  'behavior: express: sends a text in the encoding %s, and replays the text if the encoding is supported',
  async (encoding, text, isKept) => {
    const gateway = await playGateway({ once: true })
    const gate = requireExpressPayment(gateway.options)
    let served = 0
    const url = await serve((request, response) =>
      gate(request, response, () => {
        served++
        response.write(text, encoding)
        response.end(text, encoding)
      }),
    )
    const ask = async () => {
      const response = await fetch(url, { headers: { authorization } })
      return { status: response.status, bytes: Buffer.from(await response.arrayBuffer()) }
    }
    const whole = Buffer.concat([Buffer.from(text, encoding), Buffer.from(text, encoding)])
    expect(await ask()).toEqual({ status: 200, bytes: whole })
    const { status, bytes } = await ask()
    if (isKept) expect([status, bytes]).toEqual([200, whole])
    else {
      const detail =
        "This payment's request was served, and can't be served again: its response was in an unsupported text encoding"
      expect([status, JSON.parse(String(bytes))]).toEqual([409, expect.objectContaining({ detail })])
    }
    expect(served).toBe(1)
  },
)

test('behavior: fetch: passes the runtime’s arguments to the handler, which can return the same response twice', async () => {
  const empty = new Response(null, { status: 204 })
  const seen: unknown[] = []
  const answer = requireFetchPayment(options)(
    (_request: Request, { verified }, context: { city: string }) => {
      seen.push([verified, context.city])
      return empty
    },
  )
  const ask = () => answer(new Request('https://api.example/weather', paid), { city: 'Lisbon' })
  const receipts = (await Promise.all([ask(), ask()])).map(({ headers }) => headers.get('service-receipt'))
  expect(new Set(receipts).size).toBe(2)
  expect(seen).toEqual([
    [true, 'Lisbon'],
    [true, 'Lisbon'],
  ])
  expect([...empty.headers]).toEqual([])
})

test('behavior: fetch: forwards a response of fetch() with the receipt', async () => {
  const upstream = await serve((_, response) => response.setHeader('x-own', 'kept').end('from elsewhere'))
  const answer = requireFetchPayment(options)(() => fetch(upstream))
  const response = await answer(new Request('https://api.example/weather', paid))
  expect([await response.text(), response.headers.get('x-own')]).toEqual(['from elsewhere', 'kept'])
  expect(response.headers.get('service-receipt')).not.toBeNull()
})

test('error: fetch: voids the payment of a handler that returns nothing', async () => {
  const gateway = await playGateway()
  const answer = requireFetchPayment(gateway.options)((() => undefined) as never)
  const request = new Request('https://api.example/weather', { headers: { authorization } })
  await expect(answer(request)).rejects.toThrow(TypeError)
  expect(gateway.calls).toEqual(['/verify', '/payments/pay_1/void'])
})

const tab = { id: `tab_${'0'.repeat(32)}`, sequence: 3 }
const onTab = {
  'payment-signature': encodePaymentHeader({
    x402Version: 2,
    accepted: { scheme: 'tab', network: 'eip155:8453', extra: { macaroon: 'AgEA' } },
    payload: tabs.payloads.valid[0]?.payload,
  }),
}

async function get(url: string, headers: Record<string, string>) {
  const response = await fetch(url, { headers })
  return { status: response.status, headers: response.headers, json: () => response.json() }
}

/** Starts a gateway that accepts every payment and records the requests to it. */
async function playGateway({
  voids = true,
  once = false,
  tab,
}: {
  voids?: boolean
  /** Whether the gateway accepts a payment only once, like the real one. */
  once?: boolean
  tab?: object
} = {}) {
  const calls: string[] = []
  let accepted: unknown
  const state = { isLosing: false }
  const gatewayUrl = await serve(async (request, response) => {
    if (state.isLosing) {
      request.socket.destroy()
      return
    }
    const isCharge = request.url?.endsWith('/charge')
    calls.push(isCharge ? `${request.url} ${await readBody(request)}` : (request.url ?? ''))
    const isVoid = request.url?.endsWith('/void') || isCharge
    const key = request.headers['idempotency-key']
    accepted ??= key
    if (once && key !== undefined && key !== accepted) {
      response.writeHead(409, { 'content-type': 'application/problem+json' })
      return response.end(JSON.stringify({ status: 409, code: 'payment_replayed' }))
    }
    response.writeHead(isVoid && !voids ? 409 : 200, { 'content-type': 'application/json' })
    const paymentResponse = tab && { success: true, extra: { tab } }
    response.end(
      JSON.stringify({ verified: true, receipt: 'a.b.c', paymentId: 'pay_1', tab, paymentResponse }),
    )
  })
  const gate = { ...options, mockPayments: false, gatewayUrl, apiKey: 'tk_1', endpointId: 'ep_1' }
  return { calls, state, options: gate }
}
