/** Starts a provider's server behind the gateway's proxy, and buys the server's answers. */
import { once } from 'node:events'
import {
  createServer,
  type IncomingMessage,
  type RequestListener,
  type Server,
  type ServerResponse,
} from 'node:http'
import { type AddressInfo, connect } from 'node:net'
import { serve } from '@tollkeeper/runtime/serve'
import { signPayment } from '@tollkeeper/sdk/client/payment'
import { encodeAuthorizationHeader } from '@tollkeeper/sdk/protocol/authorizationHeader'
import { parseChallenge } from '@tollkeeper/sdk/protocol/challenge'
import { networks } from '@tollkeeper/sdk/protocol/networks'
import type { PrivateKeyAccount } from 'viem'
import { afterAll, beforeAll, beforeEach, expect } from 'vitest'
import type { App } from '../../api/http/app.ts'
import type { GatewaySettings } from '../../api/http/settings.ts'
import { call } from './gateway.ts'
import type { useGateway } from './useGateway.ts'

const limits = { allowPrivate: true, maxBodyBytes: 1_000, connectTimeoutMs: 60_000, answerTimeoutMs: 60_000 }
export const upstreamSettings = {
  ...limits,
  idleTimeoutMs: 60_000,
  uploadTimeoutMs: 60_000,
  concurrency: 100,
}

/** Results of `statusOf` for a paid response, and for one whose payment was voided. */
export const paid = ['verified', 'verified', true]
export const voided = ['voided', 'voided', false]

type Sale = {
  buyer: PrivateKeyAccount
  /** URL of the gateway. */
  url: string
  app: App
  upstream: Server
  /** Responds for the provider's server. Before each test it is reset to a function that serves everything. */
  handler: RequestListener
  upstreamUrl: string
  provider: { providerId: string; apiKey: string }
  secret: string
}

/** Starts a gateway and a provider's server behind its proxy, for the tests of a file. */
export function useProxiedSale(gateway: ReturnType<typeof useGateway>) {
  const sale = {} as Sale
  let server: { close(): Promise<void> }
  beforeAll(async () => {
    sale.buyer = await gateway.buyer(1_000_000_000n)
    const running = await serve(
      { fetch: (...args) => sale.app.fetch(...args) },
      { host: '127.0.0.1', port: 0, portVariable: 'X', uploads: { silenceMs: 2_000 } },
    )
    server = running
    sale.url = `http://127.0.0.1:${running.port}`
    restart()
    sale.upstream = createServer((request, response) => sale.handler(request, response))
    sale.upstream.keepAliveTimeout = 120_000
    sale.upstream.listen(0, '127.0.0.1')
    await once(sale.upstream, 'listening')
    sale.upstreamUrl = `http://127.0.0.1:${(sale.upstream.address() as AddressInfo).port}`
    sale.provider = await register()
    sale.secret = (
      await own<{ secret: string }>('PUT', '/upstream', { url: `${sale.upstreamUrl}/v2/` })
    ).body.secret
    for (const method of ['GET', 'POST']) await sell('/*', { method })
  })
  afterAll(async () => {
    await server?.close()
    sale.upstream?.closeAllConnections()
    sale.upstream?.close()
  })
  beforeEach(() => {
    restart()
    sale.handler = (_, response) => response.end('served')
  })

  /** Replaces the gateway with another one. */
  function restart(
    more: Partial<GatewaySettings['upstream']> = {},
    others: Partial<GatewaySettings> = {},
  ): void {
    sale.app = gateway.another({ issuer: sale.url, upstream: { ...upstreamSettings, ...more }, ...others })
  }

  async function register() {
    const { body } = await call<{ providerId: string; apiKey: string }>(sale.app, 'POST', '/providers', {
      json: { name: 'Weather' },
    })
    await call(sale.app, 'POST', `/providers/${body.providerId}/wallets`, {
      json: { network: 'localhost', address: `0x${'ab'.repeat(20)}` },
      key: body.apiKey,
    })
    return body
  }

  function own<T = Record<string, unknown>>(method: string, path: string, json?: unknown) {
    return call<T>(sale.app, method, `/providers/${sale.provider.providerId}${path}`, {
      key: sale.provider.apiKey,
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

  const at = (path: string) => `${sale.url}/p/${sale.provider.providerId}${path}`

  /** Returns a header that pays for the requested path. */
  async function payFor(
    path: string,
    method = 'GET',
    headers: Record<string, string> = {},
  ): Promise<{ authorization: string }> {
    const response = await fetch(at(path), { method, headers })
    expect(response.status).toBe(402)
    const payment = await signPayment(parseChallenge(await response.json()), {
      payer: sale.buyer,
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

  /** Returns the status of the payment for a response, according to the response's header and to the gateway. */
  async function statusOf({ headers }: Response) {
    const paymentId = headers.get('service-payment-id')
    const { body } = await call(sale.app, 'GET', `/payments/${paymentId}`)
    return [headers.get('service-payment-status'), body.payment_status, headers.has('service-receipt')]
  }

  /** Returns the next request that the upstream gets; the test answers it. */
  function nextRequest(): Promise<[IncomingMessage, ServerResponse]> {
    const { promise, resolve } = Promise.withResolvers<[IncomingMessage, ServerResponse]>()
    sale.handler = (...exchange) => resolve(exchange)
    return promise
  }

  /** Returns the statuses of the proxy's responses since the restart, once there are two. */
  async function untilAnswered(): Promise<string[]> {
    for (;;) {
      const metrics = await (await fetch(`${sale.url}/metrics`)).text()
      const counted = metrics.matchAll(/_count\{.*route="\/p\/.*status="(\d+)".*\} (\d+)/g)
      const statuses = [...counted].flatMap(([, status = '', count]) =>
        Array<string>(Number(count)).fill(status),
      )
      if (statuses.length >= 2) return statuses.toSorted()
    }
  }

  /** Sends a request head unchanged, which no valid client would send. */
  async function ask(head: string) {
    const { hostname, port } = new URL(sale.url)
    const socket = connect(Number(port), hostname)
    await once(socket, 'connect')
    socket.write(`${head}\r\nHost: ${hostname}:${port}\r\n\r\n`)
    return socket
  }

  /** Sends the head and a part of the body. */
  async function sendHalf(authorization: string) {
    const head = `POST /p/${sale.provider.providerId}/forecast HTTP/1.1\r\nAuthorization: ${authorization}\r\nContent-Length: 10`
    const socket = await ask(head)
    socket.write('half')
    return socket
  }

  return {
    sale,
    restart,
    register,
    own,
    sell,
    at,
    payFor,
    buy,
    statusOf,
    nextRequest,
    untilAnswered,
    ask,
    sendHalf,
  }
}
