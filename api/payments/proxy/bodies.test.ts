import { once } from 'node:events'
import type { ServerResponse } from 'node:http'
import { text } from 'node:stream/consumers'
import { createLogger } from '@tollkeeper/runtime/log'
import { describe, expect, onTestFinished, test, vi } from 'vitest'
import { failCloses, spyOnWrites } from '../../../test/support/fileWrites.ts'
import { paid, upstreamSettings, useProxiedSale } from '../../../test/support/proxiedSale.ts'
import { startTlsProxy, trustAuthority } from '../../../test/support/tlsProxy.ts'
import { useGateway } from '../../../test/support/useGateway.ts'

// This provider doesn't use our middleware: the gateway's proxy sells the answers of the provider's server. Neither buyers nor this server can be
// trusted, so each test plays one of them, over real connections.

const gateway = useGateway()
const { sale, restart, own, at, payFor, buy, statusOf, nextRequest, untilAnswered, sendHalf } =
  useProxiedSale(gateway)

async function until(isSo: () => boolean): Promise<void> {
  while (!isSo()) await new Promise((resolve) => setTimeout(resolve, 20))
}

describe('streams', () => {
  test('behavior: an upstream with TLS gets several requests over one connection', async () => {
    onTestFinished(await trustAuthority())
    const proxy = await startTlsProxy(sale.upstreamUrl)
    await own('PUT', '/upstream', { url: proxy.url })
    restart()
    for (const method of ['GET', 'GET', 'POST']) {
      const response = await buy('/forecast', { method, ...(method === 'POST' && { body: 'a' }) })
      expect([await response.text(), await statusOf(response)]).toEqual(['served', paid])
    }
    // The two safe requests share a connection; the third request has a separate connection.
    expect(proxy.connections()).toBe(2)
    await own('PUT', '/upstream', { url: `${sale.upstreamUrl}/v2` })
    await proxy.close()
  })

  test('behavior: an answer is streamed while the upstream writes it, and no faster than the buyer reads it', async () => {
    let written = 0
    const chunk = Buffer.alloc(65_536, 'x')
    const { promise: begun, resolve: begin } = Promise.withResolvers<void>()
    sale.handler = async (_, response) => {
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
    // The buffers on the way fill up; they hold far less than the total of 64 MB.
    await until(() => written > 10)
    let before = -1
    while (written !== before) {
      before = written
      await new Promise((resolve) => setTimeout(resolve, 300))
    }
    expect(written).toBeLessThan(500)
    // The buyer disconnects midway: the upstream notices, and has been paid.
    await reader?.cancel()
    await until(() => closed)
    expect(await statusOf(response)).toEqual(paid)
  })

  test.each([
    ['a few bytes', 2],
    ['more than is held in memory', 100_000],
  ])(
    'behavior: a body of %s is passed on with its length once it has arrived completely',
    async (_, length) => {
      restart({ maxBodyBytes: 2 * length })
      let sent: [string | undefined, string] | undefined
      sale.handler = async (request, response) => {
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
    },
  )

  test('behavior: passes on an answer that arrives before the upstream has read the body', async () => {
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
      'breaks off an answer with a Content-Length',
      (response) => response.setHeader('Content-Length', '100'),
      (response) => response.destroy(),
    ],
    ['stops sending', () => {}, () => {}],
  ])(
    'behavior: if an upstream %s midway, the buyer sees that the answer is incomplete, and has paid',
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

  test('behavior: a buyer that doesn’t read is disconnected, and sees that the answer is incomplete', async () => {
    restart({ idleTimeoutMs: 3_000 })
    const asked = nextRequest()
    const answer = buy('/forecast')
    const [, upstreamResponse] = await asked
    upstreamResponse.end(Buffer.alloc(50_000_000))
    const response = await answer
    await once(upstreamResponse, 'close')
    await expect(response.arrayBuffer()).rejects.toThrow()
  })

  test('behavior: a buyer that disconnects before the answer arrives can get it later with the same payment', async () => {
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
    // At another path, the payment buys nothing and returns no stored answer.
    const other = await fetch(at('/other'), { headers })
    expect([other.status, ((await other.json()) as { code: string }).code]).toEqual([409, 'payment_replayed'])
    // Another process has no stored answer.
    restart()
    expect((await fetch(at('/forecast'), { headers })).status).toBe(409)
  })

  test('behavior: a buyer that disconnects in the middle of its request body has paid nothing', async () => {
    let isReached = false
    sale.handler = () => {
      isReached = true
    }
    const { authorization } = await payFor('/forecast', 'POST')
    const socket = await sendHalf(authorization)
    socket.destroy()
    expect(await untilAnswered()).toEqual(['402', '408'])
    expect(isReached).toBe(false)
    sale.handler = async (request, response) => response.end(await text(request))
    const answer = await fetch(at('/forecast'), { method: 'POST', body: 'whole', headers: { authorization } })
    expect([answer.status, await answer.text()]).toEqual([200, 'whole'])
  })
})

describe('limits', () => {
  test('behavior: a body that is too large is refused unpaid, with or without Content-Length', async () => {
    const headers = await payFor('/forecast', 'POST')
    const said = await fetch(at('/forecast'), { method: 'POST', body: 'x'.repeat(1_001), headers })
    expect([said.status, said.headers.get('service-payment-id')]).toEqual([413, null])
    const body = new Blob(['x'.repeat(1_001)]).stream()
    const init: RequestInit & { duplex: 'half' } = { method: 'POST', body, duplex: 'half', headers }
    const found = await fetch(at('/forecast'), init)
    expect([found.status, found.headers.get('service-payment-id')]).toEqual([413, null])
    // The payment is still valid.
    const smaller = await fetch(at('/forecast'), { method: 'POST', body: 'x'.repeat(1_000), headers })
    expect(await statusOf(smaller)).toEqual(paid)
  })

  test('error: a body that can’t be written to disk is refused unpaid', async () => {
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

  test('behavior: a file that can’t be closed is logged, and the buyer is served', async () => {
    const log = createLogger('test', 'silent')
    const logged = vi.spyOn(log, 'error')
    const upstream = { ...upstreamSettings, maxBodyBytes: 200_000 }
    sale.app = gateway.withOptions({ log, settings: { ...gateway.settings, issuer: sale.url, upstream } })
    const headers = await payFor('/forecast', 'POST')
    const error = new Error('EIO')
    await failCloses(error)
    const response = await fetch(at('/forecast'), { method: 'POST', body: 'x'.repeat(200_000), headers })
    expect(await statusOf(response)).toEqual(paid)
    await expect.poll(() => logged.mock.calls).toEqual([[{ err: error }, expect.any(String)]])
  })

  test('behavior: a buyer that stops sending has paid nothing', async () => {
    const { authorization } = await payFor('/forecast', 'POST')
    const socket = await sendHalf(authorization)
    const answer = await text(socket)
    expect(answer).toMatch(/^HTTP\/1\.1 408 /)
    expect(answer).toMatch(/"code":"request_timeout"/)
    const whole = await fetch(at('/forecast'), { method: 'POST', body: 'whole', headers: { authorization } })
    expect(await statusOf(whole)).toEqual(paid)
  })

  test('behavior: concurrent requests to a provider’s upstream are limited, and further requests are refused unpaid', async () => {
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
    sale.handler = (_, response) => response.end('served')
    expect((await fetch(at('/forecast'), { headers: headers[1] as HeadersInit })).status).toBe(200)
  })

  test('behavior: rate limits apply to callers and to payers', async () => {
    const rateLimits = { challenge: 2, verify: 1, register: 1, other: 1, payer: 10, keyFactor: 1 }
    restart({}, { rateLimits })
    // The clock is set to the middle of a minute, so that no minute ends while its requests are counted.
    gateway.setNow(30_000 + 60_000 * Math.floor(Date.now() / 60_000))
    const headers = await payFor('/forecast')
    const codes = [await fetch(at('/forecast')), await fetch(at('/forecast'))].map(({ status }) => status)
    expect(codes).toEqual([402, 429])
    expect((await fetch(at('/forecast'), { headers })).status).toBe(200)
    expect((await fetch(at('/forecast'), { headers })).status).toBe(429)
  })
})

describe('early refusals', () => {
  /** Returns the gateway's answer after it has received only half of the body. */
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

  test('error: refuses an invalid payment before the request’s body has arrived', async () => {
    const { authorization } = await payFor('/forecast', 'POST')
    const [, macaroon = '', ...payloads] = /^x402 ([^:]+):(.*)$/.exec(authorization) ?? []
    const middle = macaroon.length / 2
    const forged = `${macaroon.slice(0, middle)}${macaroon[middle] === 'A' ? 'B' : 'A'}${macaroon.slice(middle + 1)}`
    expect(await answerToHalf(`x402 ${[forged, ...payloads].join(':')}`)).toEqual(refusal('macaroon_invalid'))
    const ofAnother = await payFor('/forecast', 'GET')
    expect(await answerToHalf(ofAnother.authorization)).toEqual(refusal('caveat_mismatch'))
    expect((await answerToHalf('x402 half:payment')).status).toBe(400)
  })

  test('behavior: a repeated payment gets its stored answer for ten minutes, even after the challenge has expired', async () => {
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
