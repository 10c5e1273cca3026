import { once } from 'node:events'
import type { IncomingMessage, RequestListener } from 'node:http'
import { text } from 'node:stream/consumers'
import { gzipSync } from 'node:zlib'
import { createAddressGuard } from '@tollkeeper/runtime/addressGuard'
import { createClient } from '@tollkeeper/sdk/client/createClient'
import { parseChallenge } from '@tollkeeper/sdk/protocol/challenge'
import { decodeReceipt } from '@tollkeeper/sdk/protocol/receipt'
import { encodePaymentHeader } from '@tollkeeper/sdk/protocol/x402'
import { PaymentRequiredV1Schema } from '@x402/core/schemas'
import type { Address } from 'viem'
import { describe, expect, onTestFinished, test } from 'vitest'
import { call } from '../../../test/support/gateway.ts'
import { paid, useProxiedSale, voided } from '../../../test/support/proxiedSale.ts'
import { startTlsProxy, trustAuthority } from '../../../test/support/tlsProxy.ts'
import { randomHex, signAuthorization, validFor } from '../../../test/support/usdc.ts'
import { useGateway } from '../../../test/support/useGateway.ts'

// This provider doesn't use our middleware: the gateway's proxy sells the answers of the provider's server. Neither buyers nor this server can be
// trusted, so each test plays one of them, over real connections.

const gateway = useGateway()
const { sale, restart, own, sell, at, payFor, buy, statusOf, nextRequest, ask } = useProxiedSale(gateway)

test('default: our client buys what the provider’s server answers', async () => {
  let seen: IncomingMessage | undefined
  let sent = ''
  sale.handler = async (request, response) => {
    seen = request
    sent = await text(request)
    response.setHeader('Set-Cookie', 'session=1').setHeader('Service-Receipt', 'forged')
    response.setHeader('X-Own', 'kept').setHeader('Cache-Control', 'public, max-age=60')
    response.end(JSON.stringify({ celsius: 19 }))
  }
  const client = createClient({
    gatewayUrl: sale.url,
    network: 'localhost',
    account: sale.buyer,
    usdcAddress: gateway.served.token,
    limits: { perPayment: '0.05' },
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
    new URL(sale.upstreamUrl).host,
  ])
  expect(seen?.headers).toMatchObject({
    'service-upstream-secret': sale.secret,
    'service-payment-id': paymentId,
  })
  for (const name of ['authorization', 'cookie']) expect(seen?.headers).not.toHaveProperty(name)

  sale.handler = (_, response) => response.setHeader('Cache-Control', 'public, max-age=60').end('served')
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

test('behavior: passes on no request without a payment for exactly this request', async () => {
  sale.handler = () => expect.unreachable()
  const unpaid = await fetch(at('/forecast'))
  const challenge = parseChallenge(await unpaid.json())
  expect([unpaid.status, challenge.accepts[0].resource]).toEqual([402, at('/forecast')])
  expect(unpaid.headers.get('payment-required')).not.toBeNull()
  expect((await fetch(at('/forecast'), { headers: { authorization: 'x402 mock:mock' } })).status).toBe(402)
  expect(
    (await fetch(at('/forecast'), { headers: { authorization: `Bearer ${sale.provider.apiKey}` } })).status,
  ).toBe(402)
  expect(
    (await fetch(at('/forecast'), { headers: { authorization: `x402 ${sale.provider.providerId}` } })).status,
  ).toBe(400)
  // A payment for another endpoint at the same price.
  await sell('/expensive', { method: 'GET', pricing: { usdcPerUnit: '0.10' } })
  restart()
  const cheap = await payFor('/forecast')
  expect((await fetch(at('/expensive'), { headers: cheap })).status).toBe(402)
  // The refusal didn't use up the payment: it buys one request, and no more.
  sale.handler = (_, response) => response.end('served')
  expect((await fetch(at('/forecast'), { headers: cheap })).status).toBe(200)
  expect((await fetch(at('/forecast?again'), { headers: cheap })).status).toBe(409)
})

test('behavior: accepts the price of an earlier challenge after a change of the price, and refuses requests to a disabled endpoint', async () => {
  const { body } = await sell('/changing', { method: 'GET' })
  const headers = await payFor('/changing')
  const change = (json: object) =>
    call(sale.app, 'PATCH', `/providers/${sale.provider.providerId}/endpoints/${body.endpointId}`, {
      key: sale.provider.apiKey,
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

test('args: acceptX402V1: x402 v1 clients can pay as well, and our own client can still pay', async () => {
  const put = (json: object) => own('PUT', '/upstream', { url: `${sale.upstreamUrl}/v2/`, ...json })
  expect((await put({ acceptX402V1: true })).body).toMatchObject({ acceptX402V1: true })
  // A change of the URL alone leaves `acceptX402V1` unchanged.
  expect((await put({})).body).toMatchObject({ acceptX402V1: true })
  restart()
  let seen: IncomingMessage | undefined
  sale.handler = (request, response) => {
    seen = request
    response.end('served')
  }
  const { accepts } = PaymentRequiredV1Schema.parse(await (await fetch(at('/forecast'))).json())
  const [{ maxAmountRequired, payTo, maxTimeoutSeconds = 0 } = {} as (typeof accepts)[0]] = accepts
  expect(accepts).toMatchObject([
    { maxAmountRequired: '50000', maxTimeoutSeconds: 3_600, network: 'localhost' },
  ])
  const { signature, ...signed } = await signAuthorization(gateway.served, sale.buyer, {
    from: sale.buyer.address.toLowerCase() as Address,
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
    gatewayUrl: sale.url,
    network: 'localhost',
    account: sale.buyer,
    usdcAddress: gateway.served.token,
    limits: { perPayment: '0.05' },
  })
  expect((await client.request(at('/forecast'))).data).toBe('served')
  expect(await put({ acceptX402V1: 'yes' })).toMatchObject({
    status: 400,
    body: { code: 'invalid_request' },
  })
  await put({ acceptX402V1: false })
})

test('a browser gets a payment page in the provider’s name, which can’t run scripts on the gateway’s origin', async () => {
  const accept = 'text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8'
  const page = await fetch(at('/forecast?city=%3Cscript%3E'), { headers: { accept } })
  expect([page.status, page.headers.get('content-type')]).toEqual([402, 'text/html; charset=utf-8'])
  expect(page.headers.get('content-security-policy')).toMatch(/^default-src 'none';style-src 'sha256-/)
  const html = await page.text()
  const { body } = await call<{ name: string }>(
    gateway.app,
    'GET',
    `/providers/${sale.provider.providerId}`,
    {
      key: sale.provider.apiKey,
    },
  )
  expect(html).toContain(`<bdi>${body.name}</bdi>`)
  expect(html).toContain('This costs 0.05 USDC')
  expect(html).toContain(`GET ${at('/forecast?city=%3Cscript%3E')}`)
  expect(html).not.toContain('<script')
})

describe('no service, no charge', () => {
  const raw =
    (answer: string): RequestListener =>
    ({ socket }) =>
      void socket.end(answer.replaceAll('\n', '\r\n'))

  test.each<[string, RequestListener, number, string?]>([
    ['fails', (_, response) => response.writeHead(500, { 'Service-Receipt': 'x' }).end('sorry'), 500],
    ['is unavailable', (_, response) => response.writeHead(503).end('sorry'), 503],
    ['answers 402 itself', (_, response) => response.writeHead(402).end('{}'), 502, 'upstream_failed'],
    ['treats us as a proxy', (_, response) => response.writeHead(407).end(), 502, 'upstream_failed'],
    ['hangs up', ({ socket }) => void socket.destroy(), 502, 'upstream_failed'],
    ['never answers', () => {}, 504, 'upstream_timeout'],
    ['does not speak HTTP', raw('hello\n\n'), 502, 'upstream_failed'],
    ['sends a malformed head', raw('HTTP/1.1 200 OK\nX-A: 1\nX\0B: 2\n\n'), 502, 'upstream_failed'],
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
    ['has a non-standard status', raw('HTTP/1.1 999 Odd\nContent-Length: 0\n\n'), 502, 'upstream_failed'],
  ])('behavior: charges nothing for an upstream that %s', async (_, answers, status, code) => {
    restart({ answerTimeoutMs: status === 504 ? 500 : 30_000 })
    const headers = await payFor('/forecast')
    sale.handler = answers
    const response = await fetch(at('/forecast'), { headers })
    const body = await response.text()
    expect([response.status, await statusOf(response)]).toEqual([status, voided])
    if (code) expect(JSON.parse(body)).toMatchObject({ code })
    else expect(body).toBe('sorry')
  })

  test('behavior: charges nothing for a request on a tab if the upstream fails', async () => {
    const client = createClient({
      gatewayUrl: sale.url,
      network: 'localhost',
      account: sale.buyer,
      usdcAddress: gateway.served.token,
      limits: { perPayment: '0.05' },
      tabs: true,
    })
    sale.handler = (_, response) => response.writeHead(500).end('sorry')
    await expect(client.request(at('/forecast'))).rejects.toMatchObject({
      status: 500,
      outcome: 'not_charged',
      payment: { tab: { sequence: 1 } },
    })
  })

  test('behavior: charges nothing if the upstream is down or was never registered', async () => {
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
    sale.secret = (
      await own<{ secret: string }>('PUT', '/upstream', { url: `${sale.upstreamUrl}/v2` })
    ).body.secret
  })

  test('behavior: refuses a private address when the upstream is called, even if it was public at registration', async () => {
    let isReached = false
    sale.handler = (_, response) => {
      isReached = true
      response.end()
    }
    onTestFinished(await trustAuthority())
    const proxy = await startTlsProxy(sale.upstreamUrl)
    let address = '93.184.216.34'
    const guard = createAddressGuard({ allowPrivate: false, resolve: async () => [{ address, family: 4 }] })
    const guardCalls = () => {
      sale.app = gateway.withOptions({
        settings: { ...gateway.settings, issuer: sale.url },
        upstreamGuard: guard,
      })
    }
    const expectRefused = async () => {
      const response = await buy('/forecast')
      expect(await response.json()).toMatchObject({
        code: 'upstream_failed',
        detail: expect.stringMatching(/AddressRefused/),
      })
      expect([await statusOf(response), isReached, proxy.connections()]).toEqual([voided, false, 0])
    }
    // The upstream's URL contains a private address, and was registered before the operator forbade private addresses.
    guardCalls()
    await expectRefused()
    // The URL has a name that was public at registration, and that now resolves to this machine.
    expect((await own('PUT', '/upstream', { url: proxy.url })).status).toBe(200)
    address = '127.0.0.1'
    guardCalls()
    await expectRefused()
    for (const refused of [proxy.url, sale.upstreamUrl, 'https://127.0.0.1', 'https://[::1]']) {
      expect((await own('PUT', '/upstream', { url: refused })).body).toMatchObject({
        code: 'upstream_url_refused',
      })
    }
    await proxy.close()
    restart()
    await own('PUT', '/upstream', { url: `${sale.upstreamUrl}/v2` })
  })
})

describe('answers', () => {
  test.each([204, 205, 304, 404, 418])('behavior: %i is passed on as an answer', async (status) => {
    sale.handler = (_, response) => response.writeHead(status, { etag: '"1"' }).end()
    const response = await buy('/forecast', { headers: { 'if-none-match': '"1"' } })
    expect([response.status, response.headers.get('etag'), await statusOf(response)]).toEqual([
      status,
      '"1"',
      paid,
    ])
  })

  test('behavior: a redirect is passed on to the buyer, and leads back to the gateway', async () => {
    sale.handler = (_, response) => response.writeHead(302, { location: '/v2/elsewhere?a=1' }).end()
    const response = await buy('/forecast')
    expect([response.status, response.headers.get('location')]).toEqual([302, at('/elsewhere?a=1')])
  })

  test('behavior: HEAD is charged like GET, and passed on as HEAD', async () => {
    let method: string | undefined
    sale.handler = (request, response) => {
      method = request.method
      response.setHeader('Content-Length', '1000').end()
    }
    const headers = await payFor('/forecast')
    const response = await fetch(at('/forecast'), { method: 'HEAD', headers })
    expect([method, response.status, response.headers.get('content-length')]).toEqual(['HEAD', 200, '1000'])
    expect(await statusOf(response)).toEqual(paid)
  })

  test('behavior: compressed answers stay compressed, and informational answers are dropped', async () => {
    sale.handler = (_, response) => {
      response.writeContinue()
      response.writeEarlyHints({ link: '</style.css>; rel=preload' })
      response.setHeader('Content-Encoding', 'gzip').end(gzipSync('served'))
    }
    const response = await buy('/forecast')
    expect([response.headers.get('content-encoding'), await response.text()]).toEqual(['gzip', 'served'])
  })

  test('behavior: if the upstream closes a reused connection, the request is sent again on a new connection, and the buyer gets its answer', async () => {
    // The server closes each connection after one answer, without announcing it.
    let calls = 0
    sale.handler = ({ socket }, response) => {
      if (++calls === 1) return void response.end('served')
      if (calls === 2) return void socket.destroy()
      response.end('served again')
    }
    expect(await (await buy('/forecast')).text()).toBe('served')
    const response = await buy('/forecast')
    expect([await response.text(), calls, await statusOf(response)]).toEqual(['served again', 3, paid])
  })
})

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
  test.each(Object.entries(paths))(
    'error: a path with %s reaches no upstream, paid or not',
    async (_, path) => {
      let isReached = false
      const { authorization } = await payFor('/forecast')
      sale.handler = (_, response) => {
        isReached = true
        response.end()
      }
      const target = path.replaceAll('PROV', sale.provider.providerId)
      const socket = await ask(
        `GET ${target} HTTP/1.1\r\nConnection: close\r\nAuthorization: ${authorization}`,
      )
      expect([await text(socket), isReached]).toEqual([expect.stringMatching(/^HTTP\/1\.1 40[04] /), false])
    },
  )

  test('behavior: the path that is charged is the path that is passed on, regardless of its spelling', async () => {
    let target: string | undefined
    sale.handler = (request, response) => {
      target = request.url
      response.end()
    }
    const { authorization } = await payFor('/forecast')
    const path = `/p/prov_1/%2e%2E/${sale.provider.providerId}/expensive/../forecast?a=/../b`
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
      `GET /p/${sale.provider.providerId}/forecast HTTP/1.1\r\nAuthorization: ${authorization}\r\n${upgrade}`,
    )
    const [answer] = await once(socket, 'data')
    socket.destroy()
    expect(String(answer)).toMatch(/^HTTP\/1\.1 501 .*"code":"upgrade_not_supported"/s)
    expect((await fetch(at('/forecast'), { headers: { authorization } })).status).toBe(200)
  })

  test('error: a request with both Content-Length and Transfer-Encoding is refused', async () => {
    sale.handler = () => expect.unreachable()
    const { authorization } = await payFor('/forecast', 'POST')
    const twice = 'Content-Length: 5\r\nTransfer-Encoding: chunked'
    const socket = await ask(
      `POST /p/${sale.provider.providerId}/forecast HTTP/1.1\r\nAuthorization: ${authorization}\r\n${twice}`,
    )
    socket.write('0\r\n\r\nGET /p/x HTTP/1.1\r\nHost: a\r\n\r\n')
    expect(await text(socket)).toMatch(/^HTTP\/1\.1 400 /)
  })

  test('behavior: the body of a GET is dropped, and not read as a second request', async () => {
    const seen: (string | undefined)[] = []
    sale.handler = async (request, response) => {
      seen.push(request.url, await text(request))
      response.end('served')
    }
    const { authorization } = await payFor('/forecast')
    const smuggled = 'GET /v2/admin HTTP/1.1\r\nHost: a\r\n\r\n'
    const socket = await ask(
      `GET /p/${sale.provider.providerId}/forecast HTTP/1.1\r\nConnection: close\r\nAuthorization: ${authorization}\r\nContent-Length: ${smuggled.length}`,
    )
    socket.write(smuggled)
    expect(await text(socket)).toMatch(/^HTTP\/1\.1 200 /)
    expect(seen).toEqual(['/v2/forecast', ''])
  })

  test.each(['TRACE', 'CONNECT', 'PROPFIND'])('error: the method %s is refused', async (method) => {
    const socket = await ask(
      `${method} /p/${sale.provider.providerId}/forecast HTTP/1.1\r\nConnection: close`,
    )
    expect(await text(socket)).toMatch(/^(?:$|HTTP\/1\.1 (?:4|501))/)
  })

  test('behavior: a web page’s preflight request needs no payment', async () => {
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
  test('default: a path is registered with its URL on the gateway', async () => {
    const { status, body } = await sell('/cities/:city')
    expect([status, body.url]).toEqual([201, at('/cities/:city')])
    expect((await own('GET', '/upstream')).body).toEqual({
      url: `${sale.upstreamUrl}/v2`,
      acceptX402V1: false,
      forwardAuthorization: false,
      secretSince: expect.any(String),
      previousSecretExpiresAt: null,
    })
    // The secret is kept when the server's URL changes.
    expect((await own('PUT', '/upstream', { url: `${sale.upstreamUrl}/v2` })).body).not.toHaveProperty(
      'secret',
    )
  })

  test('behavior: a registered path works under a prefix that a proxy in front of the gateway strips', async () => {
    const issuer = `${sale.url}/gateway`
    restart({}, { issuer })
    const { body } = await sell('/prefixed')
    const expected = `${issuer}/p/${sale.provider.providerId}/prefixed`
    const challenge = parseChallenge(await (await fetch(at('/prefixed'))).json())
    expect([body.url, challenge.endpointId, challenge.accepts[0].resource]).toEqual([
      expected,
      body.endpointId,
      expected,
    ])
    sale.handler = (_, response) => response.writeHead(302, { location: '/v2/there' }).end()
    expect((await buy('/prefixed')).headers.get('location')).toBe(
      `${issuer}/p/${sale.provider.providerId}/there`,
    )
  })

  test('behavior: sends both secrets for a day after a rotation; the history shows who rotated, but no secret', async () => {
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
    expect(await sent()).toBe(`${body.secret}, ${sale.secret}`)
    // A day later, the server has switched over.
    gateway.setNow(Date.now() + 24 * 3_600_000)
    restart()
    expect(await sent()).toBe(body.secret)
    gateway.setNow(null)
    restart()
    const { body: history } = await own('GET', '/changes')
    expect(JSON.stringify(history)).not.toContain('upsec_')
    expect((history.changes as unknown[])[0]).toMatchObject({
      subject: sale.provider.providerId,
      after: { upstreamSecretSince: expect.any(String) },
    })
    sale.secret = body.secret
  })

  test.each([
    ['http://user:password@origin.example', 'invalid_field'],
    ['ftp://origin.example', 'invalid_field'],
    ['https://origin.example/?key=1', 'upstream_url_refused'],
    ['https://origin.example/a/../b', 'invalid_field'],
  ])('error: rejects %s as an upstream', async (given, code) => {
    expect((await own('PUT', '/upstream', { url: given })).body).toMatchObject({ code })
  })
})
