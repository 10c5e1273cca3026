import { once } from 'node:events'
import {
  createServer,
  type IncomingMessage,
  type RequestListener,
  type Server,
  type ServerResponse,
} from 'node:http'
import { type AddressInfo, connect } from 'node:net'
import { text } from 'node:stream/consumers'
import { gzipSync } from 'node:zlib'
import { createLogger } from '@tollkeeper/runtime/log'
import { serve } from '@tollkeeper/runtime/serve'
import { createClient } from '@tollkeeper/sdk/client/createClient'
import { signPayment } from '@tollkeeper/sdk/client/payment'
import { encodeAuthorizationHeader } from '@tollkeeper/sdk/protocol/authorizationHeader'
import { parseChallenge } from '@tollkeeper/sdk/protocol/challenge'
import { networks } from '@tollkeeper/sdk/protocol/networks'
import { decodeReceipt } from '@tollkeeper/sdk/protocol/receipt'
import { encodePaymentHeader } from '@tollkeeper/sdk/protocol/x402'
import { PaymentRequiredV1Schema } from '@x402/core/schemas'
import type { Address, PrivateKeyAccount } from 'viem'
import { afterAll, beforeAll, beforeEach, describe, expect, onTestFinished, test, vi } from 'vitest'
import { failCloses, spyOnWrites } from '../../../test/support/fileWrites.ts'
import { call } from '../../../test/support/gateway.ts'
import { startTlsProxy, trustAuthority } from '../../../test/support/tlsProxy.ts'
import { randomHex, signAuthorization, validFor } from '../../../test/support/usdc.ts'
import { useGateway } from '../../../test/support/useGateway.ts'
import { createAddressGuard } from '../../http/addressGuard.ts'
import type { App } from '../../http/app.ts'
import type { GatewaySettings } from '../../http/settings.ts'

// A provider without code: the gateway sells what its server answers. Both sides of the proxy are strangers, so each test
// plays one of them, over real connections.

const gateway = useGateway()
let buyer: PrivateKeyAccount
/** Where buyers call. */
let url: string
let server: { close(): Promise<void> }
let app: App
/** The provider's own server, and what it does with a request. */
let upstream: Server
let handler: RequestListener
let upstreamUrl: string
let provider: { providerId: string; apiKey: string }
let secret: string

const limits = { allowPrivate: true, maxBodyBytes: 1_000, connectTimeoutMs: 60_000, answerTimeoutMs: 60_000 }
const settings = { ...limits, idleTimeoutMs: 60_000, uploadTimeoutMs: 60_000, concurrency: 100 }

beforeAll(async () => {
  buyer = await gateway.buyer(1_000_000_000n)
  const running = await serve(
    { fetch: (...args) => app.fetch(...args) },
    { host: '127.0.0.1', port: 0, portVariable: 'X', uploads: { silenceMs: 2_000 } },
  )
  server = running
  url = `http://127.0.0.1:${running.port}`
  restart()
  upstream = createServer((request, response) => handler(request, response))
  upstream.keepAliveTimeout = 120_000
  upstream.listen(0, '127.0.0.1')
  await once(upstream, 'listening')
  upstreamUrl = `http://127.0.0.1:${(upstream.address() as AddressInfo).port}`
  provider = await register()
  secret = (await own<{ secret: string }>('PUT', '/upstream', { url: `${upstreamUrl}/v2/` })).body.secret
  for (const method of ['GET', 'POST']) await sell('/*', { method })
})
afterAll(async () => {
  await server?.close()
  upstream?.closeAllConnections()
  upstream?.close()
})
beforeEach(() => {
  restart()
  handler = (_, response) => response.end('served')
})

/** Another process in the place of the gateway's. */
function restart(
  more: Partial<GatewaySettings['upstream']> = {},
  others: Partial<GatewaySettings> = {},
): void {
  app = gateway.another({ issuer: url, upstream: { ...settings, ...more }, ...others })
}

async function register() {
  const { body } = await call<{ providerId: string; apiKey: string }>(app, 'POST', '/providers', {
    json: { name: 'Weather' },
  })
  await call(app, 'POST', `/providers/${body.providerId}/wallets`, {
    json: { network: 'localhost', address: `0x${'ab'.repeat(20)}` },
    key: body.apiKey,
  })
  return body
}

function own<T = Record<string, unknown>>(method: string, path: string, json?: unknown) {
  return call<T>(app, method, `/providers/${provider.providerId}${path}`, {
    key: provider.apiKey,
    ...(json !== undefined && { json }),
  })
}

function sell(path: string, more: object = {}) {
  return own<{ url: string; endpointId: string }>('POST', '/endpoints', {
    url: path,
    pricing: { usdcPerUnit: '0.05' },
    ...more,
  })
}

const at = (path: string) => `${url}/p/${provider.providerId}${path}`

/** A header that pays for what is asked for. */
async function payFor(path: string, method = 'GET'): Promise<{ authorization: string }> {
  const response = await fetch(at(path), { method })
  expect(response.status).toBe(402)
  const payment = await signPayment(parseChallenge(await response.json()), {
    payer: buyer,
    network: networks.localhost,
    usdc: gateway.served.token,
    now: Date.now() / 1000,
  })
  return { authorization: encodeAuthorizationHeader(payment) }
}

async function buy(path: string, init: RequestInit & { duplex?: 'half' } = {}): Promise<Response> {
  const paid = await payFor(path, init.method)
  return fetch(at(path), { redirect: 'manual', ...init, headers: { ...init.headers, ...paid } })
}

/** The status of an answer's payment, by its header and by the gateway. */
async function statusOf({ headers }: Response) {
  const paymentId = headers.get('service-payment-id')
  const { body } = await call(app, 'GET', `/payments/${paymentId}`)
  return [headers.get('service-payment-status'), body.payment_status, headers.has('service-receipt')]
}
const paid = ['verified', 'verified', true]
const voided = ['voided', 'voided', false]

/** The next request that the upstream gets, which it answers when the test says so. */
function nextRequest(): Promise<[IncomingMessage, ServerResponse]> {
  const { promise, resolve } = Promise.withResolvers<[IncomingMessage, ServerResponse]>()
  handler = (...exchange) => resolve(exchange)
  return promise
}

/** The statuses that the proxy has answered with since the restart, once it has answered twice. */
async function untilAnswered(): Promise<string[]> {
  for (;;) {
    const metrics = await (await fetch(`${url}/metrics`)).text()
    const counted = metrics.matchAll(/_count\{.*route="\/p\/.*status="(\d+)".*\} (\d+)/g)
    const statuses = [...counted].flatMap(([, status = '', count]) =>
      Array<string>(Number(count)).fill(status),
    )
    if (statuses.length >= 2) return statuses.toSorted()
  }
}

test('default: our client buys what the provider’s server answers', async () => {
  let seen: IncomingMessage | undefined
  let sent = ''
  handler = async (request, response) => {
    seen = request
    sent = await text(request)
    response.setHeader('Set-Cookie', 'session=1').setHeader('Service-Receipt', 'forged')
    response.setHeader('X-Own', 'kept').setHeader('Cache-Control', 'public, max-age=60')
    response.end(JSON.stringify({ celsius: 19 }))
  }
  const client = createClient({
    gatewayUrl: url,
    network: 'localhost',
    account: buyer,
    usdcAddress: gateway.served.token,
    maxPaymentUsdc: '0.05',
  })
  const { data, receipt, paymentId } = await client.request(at('/forecast?city=7'), {
    method: 'POST',
    body: { days: 3 },
    headers: { cookie: 'a=1', 'service-upstream-secret': 'mine' },
  })
  expect([JSON.parse(data as string), JSON.parse(sent)]).toEqual([{ celsius: 19 }, { days: 3 }])
  expect(decodeReceipt(receipt ?? '')).toMatchObject({ paymentId, totalUsdc: '50000', resource: at('/*') })
  expect([seen?.method, seen?.url, seen?.headers.host]).toEqual([
    'POST',
    '/v2/forecast?city=7',
    new URL(upstreamUrl).host,
  ])
  expect(seen?.headers).toMatchObject({ 'service-upstream-secret': secret, 'service-payment-id': paymentId })
  for (const name of ['authorization', 'cookie']) expect(seen?.headers).not.toHaveProperty(name)

  handler = (_, response) => response.setHeader('Cache-Control', 'public, max-age=60').end('served')
  const response = await buy('/forecast')
  expect([response.status, await response.text(), await statusOf(response)]).toEqual([200, 'served', paid])
  expect(Object.fromEntries(response.headers)).toMatchObject({
    'cache-control': 'private, max-age=60',
    'x-content-type-options': 'nosniff',
    'content-security-policy': expect.stringMatching(/^sandbox/),
    'access-control-allow-origin': '*',
    'access-control-expose-headers': '*',
  })
})

test('behavior: nobody is passed on who has not paid, for this', async () => {
  handler = () => expect.unreachable()
  const unpaid = await fetch(at('/forecast'))
  const challenge = parseChallenge(await unpaid.json())
  expect([unpaid.status, challenge.accepts[0].resource]).toEqual([402, at('/forecast')])
  expect(unpaid.headers.get('payment-required')).not.toBeNull()
  expect((await fetch(at('/forecast'), { headers: { authorization: 'x402 mock:mock' } })).status).toBe(402)
  expect(
    (await fetch(at('/forecast'), { headers: { authorization: `Bearer ${provider.apiKey}` } })).status,
  ).toBe(402)
  expect(
    (await fetch(at('/forecast'), { headers: { authorization: `x402 ${provider.providerId}` } })).status,
  ).toBe(400)
  // A payment for another endpoint, at the same price.
  await sell('/dear', { method: 'GET', pricing: { usdcPerUnit: '0.10' } })
  restart()
  const cheap = await payFor('/forecast')
  expect((await fetch(at('/dear'), { headers: cheap })).status).toBe(402)
  // Once.
  handler = (_, response) => response.end('served')
  expect((await fetch(at('/forecast'), { headers: cheap })).status).toBe(200)
  expect((await fetch(at('/forecast?again'), { headers: cheap })).status).toBe(409)
})

test('behavior: a challenge keeps its price, and what is disabled is not sold', async () => {
  const { body } = await sell('/changing', { method: 'GET' })
  const headers = await payFor('/changing')
  const change = (json: object) =>
    call(app, 'PATCH', `/providers/${provider.providerId}/endpoints/${body.endpointId}`, {
      key: provider.apiKey,
      headers: { 'if-match': '*' },
      json,
    })
  await change({ pricing: { usdcPerUnit: '0.20' } })
  restart()
  expect((await fetch(at('/changing'), { headers })).status).toBe(200)
  await change({ disabled: true })
  restart()
  expect(await (await fetch(at('/changing'))).json()).toMatchObject({ code: 'endpoint_disabled' })
})

test('args: body: clients of x402 v1 pay, too, and our own client goes on', async () => {
  const put = (json: object) => own('PUT', '/upstream', { url: `${upstreamUrl}/v2/`, ...json })
  expect((await put({ body: 'x402-v1' })).body).toMatchObject({ body: 'x402-v1' })
  // Another URL says nothing of the form.
  expect((await put({})).body).toMatchObject({ body: 'x402-v1' })
  restart()
  let seen: IncomingMessage | undefined
  handler = (request, response) => {
    seen = request
    response.end('served')
  }
  const { accepts } = PaymentRequiredV1Schema.parse(await (await fetch(at('/forecast'))).json())
  const [{ maxAmountRequired, payTo, maxTimeoutSeconds = 0 } = {} as (typeof accepts)[0]] = accepts
  expect(accepts).toMatchObject([
    { maxAmountRequired: '50000', maxTimeoutSeconds: 3_600, network: 'localhost' },
  ])
  const { signature, ...signed } = await signAuthorization(gateway.served, buyer, {
    from: buyer.address.toLowerCase() as Address,
    to: payTo as Address,
    value: BigInt(maxAmountRequired),
    ...validFor(maxTimeoutSeconds),
    nonce: randomHex(32),
  })
  const authorization = Object.fromEntries(Object.entries(signed).map(([name, one]) => [name, `${one}`]))
  const payment = {
    x402Version: 1,
    scheme: 'exact',
    network: 'localhost',
    payload: { signature, authorization },
  }
  const headers = { 'x-payment': encodePaymentHeader(payment) }
  const response = await fetch(at('/forecast'), { headers })
  expect([response.status, await response.text(), await statusOf(response)]).toEqual([200, 'served', paid])
  expect([response.headers.has('x-payment-response'), seen?.headers['x-payment']]).toEqual([true, undefined])
  const client = createClient({
    gatewayUrl: url,
    network: 'localhost',
    account: buyer,
    usdcAddress: gateway.served.token,
    maxPaymentUsdc: '0.05',
  })
  expect((await client.request(at('/forecast'))).data).toBe('served')
  expect(await put({ body: 'x402-v3' })).toMatchObject({ status: 422, body: { code: 'invalid_field' } })
  await put({ body: 'tollkeeper' })
})

describe('no service, no charge', () => {
  const raw =
    (answer: string): RequestListener =>
    ({ socket }) =>
      void socket.end(answer.replaceAll('\n', '\r\n'))

  test.each<[string, RequestListener, number, string?]>([
    ['fails', (_, response) => response.writeHead(500, { 'Service-Receipt': 'x' }).end('sorry'), 500],
    ['is unavailable', (_, response) => response.writeHead(503).end('sorry'), 503],
    ['asks for money itself', (_, response) => response.writeHead(402).end('{}'), 502, 'upstream_failed'],
    ['takes us for a proxy', (_, response) => response.writeHead(407).end(), 502, 'upstream_failed'],
    ['hangs up', ({ socket }) => void socket.destroy(), 502, 'upstream_failed'],
    ['never answers', () => {}, 504, 'upstream_timeout'],
    ['speaks no HTTP', raw('hello\n\n'), 502, 'upstream_failed'],
    ['splits its head', raw('HTTP/1.1 200 OK\nX-A: 1\nX\0B: 2\n\n'), 502, 'upstream_failed'],
    [
      'frames its body twice',
      raw('HTTP/1.1 200 OK\nContent-Length: 1\nTransfer-Encoding: chunked\n\n0\n\n'),
      502,
      'upstream_failed',
    ],
    [
      'has two lengths',
      raw('HTTP/1.1 200 OK\nContent-Length: 1\nContent-Length: 2\n\nab'),
      502,
      'upstream_failed',
    ],
    [
      'switches protocols',
      raw('HTTP/1.1 101 Switching Protocols\nUpgrade: x\nConnection: upgrade\n\n'),
      502,
      'upstream_failed',
    ],
    ['has a status of its own', raw('HTTP/1.1 999 Odd\nContent-Length: 0\n\n'), 502, 'upstream_failed'],
  ])('behavior: an upstream that %s', async (_, answers, status, code) => {
    restart({ answerTimeoutMs: status === 504 ? 500 : 30_000 })
    const headers = await payFor('/forecast')
    handler = answers
    const response = await fetch(at('/forecast'), { headers })
    const body = await response.text()
    expect([response.status, await statusOf(response)]).toEqual([status, voided])
    if (code) expect(JSON.parse(body)).toMatchObject({ code })
    else expect(body).toBe('sorry')
  })

  test('behavior: an upstream that fails a request on a tab', async () => {
    const client = createClient({
      gatewayUrl: url,
      network: 'localhost',
      account: buyer,
      usdcAddress: gateway.served.token,
      maxPaymentUsdc: '0.05',
      tabs: true,
    })
    handler = (_, response) => response.writeHead(500).end('sorry')
    await expect(client.request(at('/forecast'))).rejects.toMatchObject({
      status: 500,
      outcome: 'not_charged',
      payment: { tab: { sequence: 1 } },
    })
  })

  test('behavior: an upstream that is gone, or was never there', async () => {
    const headers = await payFor('/forecast')
    await own('PUT', '/upstream', { url: 'http://127.0.0.1:1' })
    restart()
    const response = await fetch(at('/forecast'), { headers })
    expect(await response.json()).toMatchObject({
      status: 502,
      code: 'upstream_failed',
      detail: 'The upstream could not be called: ECONNREFUSED',
    })
    expect(await statusOf(response)).toEqual(voided)
    await own('DELETE', '/upstream')
    restart()
    expect(await (await fetch(at('/forecast'))).json()).toMatchObject({ code: 'unknown_upstream' })
    secret = (await own<{ secret: string }>('PUT', '/upstream', { url: `${upstreamUrl}/v2` })).body.secret
  })

  test('behavior: a private address is refused when it is called, whatever it was at registration', async () => {
    let isReached = false
    handler = (_, response) => {
      isReached = true
      response.end()
    }
    onTestFinished(await trustAuthority())
    const proxy = await startTlsProxy(upstreamUrl)
    let address = '93.184.216.34'
    const guard = createAddressGuard({ allowPrivate: false, resolve: async () => [{ address, family: 4 }] })
    const guardCalls = () => {
      app = gateway.withOptions({ settings: { ...gateway.settings, issuer: url }, upstreamGuard: guard })
    }
    const expectRefused = async () => {
      const response = await buy('/forecast')
      expect(await response.json()).toMatchObject({
        code: 'upstream_failed',
        detail: expect.stringMatching(/AddressRefused/),
      })
      expect([await statusOf(response), isReached, proxy.connections()]).toEqual([voided, false, 0])
    }
    // A literal one, from before the operator forbade it.
    guardCalls()
    await expectRefused()
    // A name: public at registration, and then what it is to everybody on this machine.
    expect((await own('PUT', '/upstream', { url: proxy.url })).status).toBe(200)
    address = '127.0.0.1'
    guardCalls()
    await expectRefused()
    for (const refused of [proxy.url, upstreamUrl, 'https://127.0.0.1', 'https://[::1]']) {
      expect((await own('PUT', '/upstream', { url: refused })).body).toMatchObject({
        code: 'upstream_url_refused',
      })
    }
    await proxy.close()
    restart()
    await own('PUT', '/upstream', { url: `${upstreamUrl}/v2` })
  })
})

describe('answers', () => {
  test.each([204, 205, 304, 404, 418])('behavior: %i is an answer', async (status) => {
    handler = (_, response) => response.writeHead(status, { etag: '"1"' }).end()
    const response = await buy('/forecast', { headers: { 'if-none-match': '"1"' } })
    expect([response.status, response.headers.get('etag'), await statusOf(response)]).toEqual([
      status,
      '"1"',
      paid,
    ])
  })

  test('behavior: a redirect is the buyer’s to follow, and leads back here', async () => {
    handler = (_, response) => response.writeHead(302, { location: '/v2/elsewhere?a=1' }).end()
    const response = await buy('/forecast')
    expect([response.status, response.headers.get('location')]).toEqual([302, at('/elsewhere?a=1')])
  })

  test('behavior: HEAD is paid as the GET that it is, and passed on as what it is', async () => {
    let method: string | undefined
    handler = (request, response) => {
      method = request.method
      response.setHeader('Content-Length', '1000').end()
    }
    const headers = await payFor('/forecast')
    const response = await fetch(at('/forecast'), { method: 'HEAD', headers })
    expect([method, response.status, response.headers.get('content-length')]).toEqual(['HEAD', 200, '1000'])
    expect(await statusOf(response)).toEqual(paid)
  })

  test('behavior: what is compressed stays so, and informational answers are passed over', async () => {
    handler = (_, response) => {
      response.writeContinue()
      response.writeEarlyHints({ link: '</style.css>; rel=preload' })
      response.setHeader('Content-Encoding', 'gzip').end(gzipSync('served'))
    }
    const response = await buy('/forecast')
    expect([response.headers.get('content-encoding'), await response.text()]).toEqual(['gzip', 'served'])
  })

  test('behavior: a connection that the upstream has just closed costs nobody anything', async () => {
    // It closes each connection after one answer, without having said so.
    let calls = 0
    handler = ({ socket }, response) => {
      if (++calls === 1) return void response.end('served')
      if (calls === 2) return void socket.destroy()
      response.end('served again')
    }
    expect(await (await buy('/forecast')).text()).toBe('served')
    const response = await buy('/forecast')
    expect([await response.text(), calls, await statusOf(response)]).toEqual(['served again', 3, paid])
  })
})

describe('streams', () => {
  test('behavior: over TLS, on a connection that is used again', async () => {
    onTestFinished(await trustAuthority())
    const proxy = await startTlsProxy(upstreamUrl)
    await own('PUT', '/upstream', { url: proxy.url })
    restart()
    for (const method of ['GET', 'GET', 'POST']) {
      const response = await buy('/forecast', { method, ...(method === 'POST' && { body: 'a' }) })
      expect([await response.text(), await statusOf(response)]).toEqual(['served', paid])
    }
    // Of the two that are safe; a third one has its own.
    expect(proxy.connections()).toBe(2)
    await own('PUT', '/upstream', { url: `${upstreamUrl}/v2` })
    await proxy.close()
  })

  test('behavior: an answer comes as it is written, and no faster than it is read', async () => {
    let written = 0
    const chunk = Buffer.alloc(65_536, 'x')
    const { promise: begun, resolve: begin } = Promise.withResolvers<void>()
    handler = async (_, response) => {
      response.write('first')
      await begun
      const writeOn = () => {
        while (written < 1_000 && !response.destroyed) {
          written++
          if (!response.write(chunk)) return void response.once('drain', writeOn)
        }
      }
      response.once('close', () => {
        closed = true
      })
      writeOn()
    }
    let closed = false
    const response = await buy('/forecast')
    const reader = response.body?.getReader()
    const first = await reader?.read()
    expect(Buffer.from(first?.value ?? []).toString()).toBe('first')
    begin()
    // Buffers on the way fill up; they hold far less than the 64 MB in all.
    await until(() => written > 10)
    let before = -1
    while (written !== before) {
      before = written
      await new Promise((resolve) => setTimeout(resolve, 300))
    }
    expect(written).toBeLessThan(500)
    // The buyer leaves midway: the upstream hears of it, and has been paid.
    await reader?.cancel()
    await until(() => closed)
    expect(await statusOf(response)).toEqual(paid)
  })

  test.each([
    ['a few bytes', 2],
    ['more than is held in memory', 100_000],
  ])('behavior: a body of %s arrives whole, by its length, once it has come', async (_, length) => {
    restart({ maxBodyBytes: 2 * length })
    let sent: [string | undefined, string] | undefined
    handler = async (request, response) => {
      sent = [request.headers['content-length'], await text(request)]
      response.end('served')
    }
    const { readable, writable } = new TransformStream<Uint8Array, Uint8Array>()
    const writer = writable.getWriter()
    const answer = buy('/forecast', { method: 'POST', body: readable, duplex: 'half' })
    for (const letter of ['a', 'b']) await writer.write(Buffer.alloc(length, letter))
    expect(sent).toBeUndefined()
    await writer.close()
    expect(await (await answer).text()).toBe('served')
    expect(sent).toEqual([String(2 * length), 'a'.repeat(length) + 'b'.repeat(length)])
  })

  test('behavior: an answer that comes before the upstream has read the body is the answer', async () => {
    restart({ maxBodyBytes: 5_000_000 })
    const asked = nextRequest()
    const answer = buy('/forecast', { method: 'POST', body: Buffer.alloc(5_000_000) })
    const [request, upstreamResponse] = await asked
    upstreamResponse.writeHead(403).end('no more of it')
    const response = await answer
    expect([response.status, await response.text()]).toEqual([403, 'no more of it'])
    expect(await statusOf(response)).toEqual(paid)
    if (!request.socket.destroyed) await once(request.socket, 'close')
  })

  test.each<[string, (response: ServerResponse) => void, (response: ServerResponse) => void]>([
    ['breaks off', () => {}, (response) => response.destroy()],
    [
      'breaks off what it announced',
      (response) => response.setHeader('Content-Length', '100'),
      (response) => response.destroy(),
    ],
    ['says no more', () => {}, () => {}],
  ])(
    'behavior: an upstream that %s midway: the buyer sees that it isn’t whole, and has paid',
    async (_, begin, end) => {
      restart({ idleTimeoutMs: 3_000 })
      const asked = nextRequest()
      const answer = buy('/forecast')
      const [, upstreamResponse] = await asked
      begin(upstreamResponse)
      upstreamResponse.write('half')
      const response = await answer
      end(upstreamResponse)
      await expect(response.text()).rejects.toThrow()
      expect(await statusOf(response)).toEqual(paid)
    },
  )

  test('behavior: a buyer who doesn’t read is cut off, and sees that it isn’t whole', async () => {
    restart({ idleTimeoutMs: 3_000 })
    const asked = nextRequest()
    const answer = buy('/forecast')
    const [, upstreamResponse] = await asked
    upstreamResponse.end(Buffer.alloc(50_000_000))
    const response = await answer
    await once(upstreamResponse, 'close')
    await expect(response.arrayBuffer()).rejects.toThrow()
  })

  test('behavior: a buyer who leaves before the answer gets it again, by the same payment', async () => {
    const asked = nextRequest()
    const headers = await payFor('/forecast')
    const leaving = new AbortController()
    const answer = fetch(at('/forecast'), { headers, signal: leaving.signal })
    const [request, upstreamResponse] = await asked
    leaving.abort()
    await expect(answer).rejects.toThrow()
    const twin = fetch(at('/forecast'), { headers })
    upstreamResponse.setHeader('X-Own', 'kept').end('served once')
    for (const again of [await twin, await fetch(at('/forecast'), { headers })]) {
      expect([again.status, await again.text(), await statusOf(again)]).toEqual([200, 'served once', paid])
      const names = ['idempotent-replayed', 'x-own', 'service-payment-id']
      expect(names.map((name) => again.headers.get(name))).toEqual([
        ...['true', 'kept', request.headers['service-payment-id']],
      ])
    }
    // For another path it buys nothing, and reads nothing.
    const other = await fetch(at('/other'), { headers })
    expect([other.status, ((await other.json()) as { code: string }).code]).toEqual([409, 'payment_replayed'])
    // Another process has no answer to give.
    restart()
    expect((await fetch(at('/forecast'), { headers })).status).toBe(409)
  })

  test('behavior: a buyer who leaves in the middle of its body has paid nothing', async () => {
    let isReached = false
    handler = () => {
      isReached = true
    }
    const { authorization } = await payFor('/forecast', 'POST')
    const socket = await sendHalf(authorization)
    socket.destroy()
    expect(await untilAnswered()).toEqual(['402', '408'])
    expect(isReached).toBe(false)
    handler = async (request, response) => response.end(await text(request))
    const answer = await fetch(at('/forecast'), { method: 'POST', body: 'whole', headers: { authorization } })
    expect([answer.status, await answer.text()]).toEqual([200, 'whole'])
  })
})

describe('limits', () => {
  test('behavior: a body that is too large is refused unpaid, whether it says so or not', async () => {
    const headers = await payFor('/forecast', 'POST')
    const said = await fetch(at('/forecast'), { method: 'POST', body: 'x'.repeat(1_001), headers })
    expect([said.status, said.headers.get('service-payment-id')]).toEqual([413, null])
    const body = new Blob(['x'.repeat(1_001)]).stream()
    const init: RequestInit & { duplex: 'half' } = { method: 'POST', body, duplex: 'half', headers }
    const found = await fetch(at('/forecast'), init)
    expect([found.status, found.headers.get('service-payment-id')]).toEqual([413, null])
    // The payment is still good.
    const smaller = await fetch(at('/forecast'), { method: 'POST', body: 'x'.repeat(1_000), headers })
    expect(await statusOf(smaller)).toEqual(paid)
  })

  test('error: a body that the disk doesn’t take is refused unpaid', async () => {
    restart({ maxBodyBytes: 200_000 })
    const headers = await payFor('/forecast', 'POST')
    const { spy } = await spyOnWrites()
    spy.mockRejectedValue(new Error('ENOSPC'))
    const init = { method: 'POST', body: 'x'.repeat(200_000), headers }
    const refused = await fetch(at('/forecast'), init)
    expect([refused.status, refused.headers.get('service-payment-id')]).toEqual([503, null])
    expect(await refused.json()).toMatchObject({ code: 'overloaded', dependency: 'disk' })
    spy.mockRestore()
    expect(await statusOf(await fetch(at('/forecast'), init))).toEqual(paid)
  })

  test('behavior: a file that can’t be closed is logged, and the buyer served', async () => {
    const log = createLogger('test', 'silent')
    const logged = vi.spyOn(log, 'error')
    const upstream = { ...settings, maxBodyBytes: 200_000 }
    app = gateway.withOptions({ log, settings: { ...gateway.settings, issuer: url, upstream } })
    const headers = await payFor('/forecast', 'POST')
    const error = new Error('EIO')
    await failCloses(error)
    const response = await fetch(at('/forecast'), { method: 'POST', body: 'x'.repeat(200_000), headers })
    expect(await statusOf(response)).toEqual(paid)
    await expect.poll(() => logged.mock.calls).toEqual([[{ err: error }, expect.any(String)]])
  })

  test('behavior: a buyer who doesn’t go on sending has paid nothing', async () => {
    const { authorization } = await payFor('/forecast', 'POST')
    const socket = await sendHalf(authorization)
    const answer = await text(socket)
    expect(answer).toMatch(/^HTTP\/1\.1 408 /)
    expect(answer).toMatch(/"code":"request_timeout"/)
    const whole = await fetch(at('/forecast'), { method: 'POST', body: 'whole', headers: { authorization } })
    expect(await statusOf(whole)).toEqual(paid)
  })

  test('behavior: a provider’s upstream has so many requests at a time, and further ones are refused unpaid', async () => {
    restart({ concurrency: 1 })
    const headers = [await payFor('/forecast'), await payFor('/forecast')]
    const asked = nextRequest()
    const first = fetch(at('/forecast'), { headers: headers[0] as HeadersInit })
    const [, response] = await asked
    const second = await fetch(at('/forecast'), { headers: headers[1] as HeadersInit })
    expect([second.status, second.headers.get('service-payment-id')]).toEqual([503, null])
    expect(second.headers.get('retry-after')).toBe('1')
    expect(await second.json()).toMatchObject({ code: 'upstream_busy' })
    response.end('served')
    expect(await (await first).text()).toBe('served')
    handler = (_, response) => response.end('served')
    expect((await fetch(at('/forecast'), { headers: headers[1] as HeadersInit })).status).toBe(200)
  })

  test('behavior: rate limits hold, for who asks and for who pays', async () => {
    const rateLimits = { challenge: 2, verify: 1, register: 1, other: 1, payer: 10, keyFactor: 1 }
    restart({}, { rateLimits })
    // In the middle of a minute, so that none ends while its requests are counted.
    gateway.setNow(30_000 + 60_000 * Math.floor(Date.now() / 60_000))
    const headers = await payFor('/forecast')
    const codes = [await fetch(at('/forecast')), await fetch(at('/forecast'))].map(({ status }) => status)
    expect(codes).toEqual([402, 429])
    expect((await fetch(at('/forecast'), { headers })).status).toBe(200)
    expect((await fetch(at('/forecast'), { headers })).status).toBe(429)
  })
})

describe('a payment that will be refused', () => {
  /** What the gateway answers while it has only half of the body. */
  async function answerToHalf(authorization: string): Promise<{ status: number; code: unknown }> {
    const socket = await sendHalf(authorization)
    let received = ''
    for await (const part of socket) {
      received += String(part)
      const [head = '', body = ''] = received.split('\r\n\r\n')
      const length = Number(/content-length: (\d+)/i.exec(head)?.[1] ?? Number.NaN)
      if (body.length < length || Number.isNaN(length)) continue
      socket.destroy()
      const { code } = JSON.parse(body) as { code?: unknown }
      return { status: Number(head.split(' ')[1]), code }
    }
    throw new Error(`the connection ended: ${received}`)
  }
  const refusal = (code: string) => ({ status: 402, code })

  test('error: is answered before its body has arrived', async () => {
    const { authorization } = await payFor('/forecast', 'POST')
    const [, macaroon = '', ...payloads] = /^x402 ([^:]+):(.*)$/.exec(authorization) ?? []
    const middle = macaroon.length / 2
    const forged = `${macaroon.slice(0, middle)}${macaroon[middle] === 'A' ? 'B' : 'A'}${macaroon.slice(middle + 1)}`
    expect(await answerToHalf(`x402 ${[forged, ...payloads].join(':')}`)).toEqual(refusal('macaroon_invalid'))
    const ofAnother = await payFor('/forecast', 'GET')
    expect(await answerToHalf(ofAnother.authorization)).toEqual(refusal('caveat_mismatch'))
    expect((await answerToHalf('x402 half:payment')).status).toBe(400)
  })

  test('behavior: passes for ten minutes after its challenge has expired, as long as its answer is kept', async () => {
    const began = Date.now()
    const paid = await payFor('/forecast', 'POST')
    const present = () =>
      fetch(at('/forecast'), { method: 'POST', body: 'whole', headers: paid }).then(({ headers, status }) => [
        status,
        headers.get('idempotent-replayed'),
      ])
    expect(await present()).toEqual([200, null])
    // A challenge expires after five minutes.
    gateway.setNow(began + 590_000)
    expect(await present()).toEqual([200, 'true'])
  })
})

/** Sends a head as it stands, which no proper client would. */
async function ask(head: string) {
  const { hostname, port } = new URL(url)
  const socket = connect(Number(port), hostname)
  await once(socket, 'connect')
  socket.write(`${head}\r\nHost: ${hostname}:${port}\r\n\r\n`)
  return socket
}

/** Sends the head and a part of the body. */
async function sendHalf(authorization: string) {
  const head = `POST /p/${provider.providerId}/forecast HTTP/1.1\r\nAuthorization: ${authorization}\r\nContent-Length: 10`
  const socket = await ask(head)
  socket.write('half')
  return socket
}

async function until(isSo: () => boolean): Promise<void> {
  while (!isSo()) await new Promise((resolve) => setTimeout(resolve, 20))
}

describe('requests that no proper client sends', () => {
  const paths = {
    'dot segments': '/p/PROV/x/../../../p/PROV/../forecast',
    'encoded dot segments': '/p/PROV/%2e%2e/%2E./forecast',
    'dot segments behind another provider': '/p/prov_1/../PROV/../forecast',
    'an encoded slash': '/p/PROV/forecast%2f..%2fadmin',
    'a backslash': '/p/PROV/a\\..\\..\\admin',
    'a double slash': '/p/PROV//evil.example/admin',
    'an absolute URL': 'http://evil.example/p/PROV//admin',
    'double encoding': '/p/PROV/%252e%252e/admin',
    'a matrix parameter': '/p/PROV/forecast;admin=1',
    'an empty provider': '/p//forecast',
  }
  test.each(Object.entries(paths))('error: %s reach no upstream, paid or not', async (_, path) => {
    let isReached = false
    const { authorization } = await payFor('/forecast')
    handler = (_, response) => {
      isReached = true
      response.end()
    }
    const target = path.replaceAll('PROV', provider.providerId)
    const socket = await ask(`GET ${target} HTTP/1.1\r\nConnection: close\r\nAuthorization: ${authorization}`)
    expect([await text(socket), isReached]).toEqual([expect.stringMatching(/^HTTP\/1\.1 40[04] /), false])
  })

  test('behavior: what is charged and what is passed on is one path, however it was written', async () => {
    let target: string | undefined
    handler = (request, response) => {
      target = request.url
      response.end()
    }
    const { authorization } = await payFor('/forecast')
    const path = `/p/prov_1/%2e%2E/${provider.providerId}/dear/../forecast?a=/../b`
    const socket = await ask(`GET ${path} HTTP/1.1\r\nConnection: close\r\nAuthorization: ${authorization}`)
    expect([await text(socket), target]).toEqual([
      expect.stringMatching(/^HTTP\/1\.1 200 /),
      '/v2/forecast?a=/../b',
    ])
  })

  test('error: WebSockets are refused before anything is paid', async () => {
    const { authorization } = await payFor('/forecast')
    const upgrade =
      'Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: x'
    const socket = await ask(
      `GET /p/${provider.providerId}/forecast HTTP/1.1\r\nAuthorization: ${authorization}\r\n${upgrade}`,
    )
    const [answer] = await once(socket, 'data')
    socket.destroy()
    expect(String(answer)).toMatch(/^HTTP\/1\.1 501 .*"code":"upgrade_not_supported"/s)
    expect((await fetch(at('/forecast'), { headers: { authorization } })).status).toBe(200)
  })

  test('error: a body that is framed twice is refused by the parser', async () => {
    handler = () => expect.unreachable()
    const { authorization } = await payFor('/forecast', 'POST')
    const twice = 'Content-Length: 5\r\nTransfer-Encoding: chunked'
    const socket = await ask(
      `POST /p/${provider.providerId}/forecast HTTP/1.1\r\nAuthorization: ${authorization}\r\n${twice}`,
    )
    socket.write('0\r\n\r\nGET /p/x HTTP/1.1\r\nHost: a\r\n\r\n')
    expect(await text(socket)).toMatch(/^HTTP\/1\.1 400 /)
  })

  test('behavior: a GET’s body stays behind, and is no second request', async () => {
    const seen: (string | undefined)[] = []
    handler = async (request, response) => {
      seen.push(request.url, await text(request))
      response.end('served')
    }
    const { authorization } = await payFor('/forecast')
    const smuggled = 'GET /v2/admin HTTP/1.1\r\nHost: a\r\n\r\n'
    const socket = await ask(
      `GET /p/${provider.providerId}/forecast HTTP/1.1\r\nConnection: close\r\nAuthorization: ${authorization}\r\nContent-Length: ${smuggled.length}`,
    )
    socket.write(smuggled)
    expect(await text(socket)).toMatch(/^HTTP\/1\.1 200 /)
    expect(seen).toEqual(['/v2/forecast', ''])
  })

  test.each(['TRACE', 'CONNECT', 'PROPFIND'])('error: %s is no method here', async (method) => {
    const socket = await ask(`${method} /p/${provider.providerId}/forecast HTTP/1.1\r\nConnection: close`)
    expect(await text(socket)).toMatch(/^(?:$|HTTP\/1\.1 (?:4|501))/)
  })

  test('behavior: a page asks for leave without paying', async () => {
    const preflight = {
      'access-control-request-method': 'POST',
      'access-control-request-headers': 'authorization',
    }
    const response = await fetch(at('/forecast'), {
      method: 'OPTIONS',
      headers: { ...preflight, origin: 'https://a.example' },
    })
    expect([response.status, response.headers.get('access-control-allow-origin')]).toEqual([204, '*'])
    expect(response.headers.get('access-control-allow-headers')).toBe('authorization')
  })
})

describe('registration', () => {
  test('default: a path is served here, and its URL says where', async () => {
    const { status, body } = await sell('/cities/:city')
    expect([status, body.url]).toEqual([201, at('/cities/:city')])
    expect((await own('GET', '/upstream')).body).toEqual({
      url: `${upstreamUrl}/v2`,
      body: 'tollkeeper',
      secretSince: expect.any(String),
      previousSecretExpiresAt: null,
    })
    // It is kept when the server moves.
    expect((await own('PUT', '/upstream', { url: `${upstreamUrl}/v2` })).body).not.toHaveProperty('secret')
  })

  test('behavior: a gateway under a prefix, which a proxy in front of it strips', async () => {
    const issuer = `${url}/gateway`
    restart({}, { issuer })
    const { body } = await sell('/prefixed')
    const expected = `${issuer}/p/${provider.providerId}/prefixed`
    const challenge = parseChallenge(await (await fetch(at('/prefixed'))).json())
    expect([body.url, challenge.endpointId, challenge.accepts[0].resource]).toEqual([
      expected,
      body.endpointId,
      expected,
    ])
    handler = (_, response) => response.writeHead(302, { location: '/v2/there' }).end()
    expect((await buy('/prefixed')).headers.get('location')).toBe(`${issuer}/p/${provider.providerId}/there`)
  })

  test('behavior: after a rotation both secrets are sent for a day; who it was is in the history, the secret is not', async () => {
    const { status, body } = await own<{ secret: string }>('POST', '/upstream/secret')
    expect(status).toBe(201)
    restart()
    const sent = async () => {
      const asked = nextRequest()
      const answer = buy('/forecast')
      const [request, response] = await asked
      response.end()
      await answer
      return request.headers['service-upstream-secret']
    }
    expect(await sent()).toBe(`${body.secret}, ${secret}`)
    // A day later, the server has long switched over.
    gateway.setNow(Date.now() + 24 * 3_600_000)
    restart()
    expect(await sent()).toBe(body.secret)
    gateway.setNow(null)
    restart()
    const { body: history } = await own('GET', '/changes')
    expect(JSON.stringify(history)).not.toContain('upsec_')
    expect((history.changes as unknown[])[0]).toMatchObject({
      subject: provider.providerId,
      after: { upstreamSecretSince: expect.any(String) },
    })
    secret = body.secret
  })

  test.each([
    ['http://user:password@origin.example', 'invalid_field'],
    ['ftp://origin.example', 'invalid_field'],
    ['https://origin.example/?key=1', 'upstream_url_refused'],
    ['https://origin.example/a/../b', 'invalid_field'],
  ])('error: %s is no upstream', async (given, code) => {
    expect((await own('PUT', '/upstream', { url: given })).body).toMatchObject({ code })
  })
})
