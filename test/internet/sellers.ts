import { once } from 'node:events'
import { createServer, type RequestListener, type Server } from 'node:http'
import type { AddressInfo } from 'node:net'
import { buffer } from 'node:stream/consumers'
import { createAdaptorServer } from '@hono/node-server'
import type { App } from '@tollkeeper/api/http/app'
import type { GatewaySettings } from '@tollkeeper/api/http/settings'
import { loopback } from '@tollkeeper/runtime/port'
import { serve } from '@tollkeeper/runtime/serve'
import { requirePayment as requireExpressPayment } from '@tollkeeper/sdk/middleware/express'
import { requirePayment as requireFetchPayment } from '@tollkeeper/sdk/middleware/fetch'
import { type GateOptions, type PaymentVariables, requirePayment } from '@tollkeeper/sdk/middleware/hono'
import express from 'express'
import { Hono } from 'hono'
import { generatePrivateKey, privateKeyToAddress } from 'viem/accounts'
import { afterAll, beforeAll, onTestFinished } from 'vitest'
import { call, type TestGateway } from '../support/gateway.ts'
import { useGateway } from '../support/useGateway.ts'

/** A request that reaches a seller's handler. */
export type Served = { method: string; url: string; headers: Headers; body: Buffer<ArrayBuffer> }
/** A seller's handler. */
export type Handler = (request: Served) => Response | Promise<Response>

/** The ways to sell: three middlewares, and the gateway's proxy, whose seller runs none of our code. */
export const sellerKinds = ['hono', 'express', 'fetch', 'proxy'] as const
export type SellerKind = (typeof sellerKinds)[number]

export type Seller = {
  /** The URL that buyers call, without a slash at the end. */
  url: string
  /** The requests that reached the handler. */
  served: Served[]
  providerId: string
  apiKey: string
}

export type SellerOptions = {
  handler?: Handler
  usdcPerUnit?: string
  gate?: Partial<GateOptions>
  /**
   * Creates the server, for a seller with more than a middleware in front of its handler. Default: the standard
   * server of this kind of seller.
   */
  server?: (gate: GateOptions, handle: Handler) => Server
  /** The public origin that buyers use, if a proxy is in front. Default: the seller's own. */
  publicOrigin?: string
  /**
   * Whether to register the seller's endpoints. Default true. A test that sells at another origin sets this to false, and
   * itself registers the endpoint at that origin.
   */
  registers?: boolean
  /** Fields of the endpoints, such as a description or an input schema. */
  endpoint?: object
  /** Fields of the provider's upstream, for `proxy`. */
  upstream?: object
}

/** Opens a gateway over HTTP with its own public URL, and sellers of every kind. */
export function useSellers(overrides: Partial<GatewaySettings> = {}) {
  const gateway = useGateway(overrides)
  const state = {} as { url: string; app: App; close: () => Promise<void> }

  beforeAll(async () => {
    const server = await serve(
      { fetch: (...args) => state.app.fetch(...args) },
      { host: loopback, port: 0, portVariable: 'API_PORT' },
    )
    state.url = `http://${loopback}:${server.port}`
    state.close = server.close
    restart()
  })
  afterAll(() => state.close?.())

  /** Replaces the gateway in this process with another one, with other settings on the same database and chain. */
  function restart(more: Partial<GatewaySettings> = {}): void {
    state.app = gateway.another({ issuer: state.url, ...more })
  }

  /** Opens a seller of `/*` until the running test ends. */
  async function open(kind: SellerKind, options: SellerOptions = {}): Promise<Seller> {
    const { handler = () => Response.json({ sunny: true }), usdcPerUnit = '0.05', registers = true } = options
    const { body: provider } = await call<{ providerId: string; apiKey: string }>(
      state.app,
      'POST',
      '/providers',
      {
        json: { name: kind },
      },
    )
    const own = (method: string, path: string, json: object) =>
      call(state.app, method, `/providers/${provider.providerId}${path}`, { key: provider.apiKey, json })
    const address = privateKeyToAddress(generatePrivateKey())
    await own('POST', '/wallets', { network: 'localhost', address })
    const served: Served[] = []
    const handle: Handler = (request) => {
      served.push(request)
      return handler(request)
    }
    const gate: GateOptions = {
      gatewayUrl: state.url,
      ...provider,
      pricing: { usdcPerUnit },
      ...options.gate,
    }
    const origin = await listen(options.server?.(gate, handle) ?? serverOf(kind, gate, handle))
    if (kind === 'proxy') await own('PUT', '/upstream', { url: origin, ...options.upstream })
    for (const method of registers ? ['GET', 'POST'] : []) {
      const url = kind === 'proxy' ? '/*' : `${options.publicOrigin ?? origin}/*`
      const sold = await own('POST', '/endpoints', {
        url,
        method,
        pricing: { usdcPerUnit },
        ...options.endpoint,
      })
      if (sold.status !== 201) throw new Error(`not registered: ${JSON.stringify(sold.body)}`)
    }
    const url = kind === 'proxy' ? `${state.url}/p/${provider.providerId}` : origin
    return { url, served, ...provider }
  }

  /** Returns the options of a client for a new buyer with 10 USDC. */
  async function payment(tabs = false) {
    return {
      gatewayUrl: state.url,
      network: 'localhost',
      account: await gateway.buyer(10_000_000n),
      usdcAddress: gateway.served.token,
      limits: { perPayment: '2' },
      tabs,
    } as const
  }

  return { gateway: gateway as TestGateway, state, restart, open, payment }
}

function serverOf(kind: SellerKind, gate: GateOptions, handle: Handler): Server {
  if (kind === 'proxy') return createServer(listenerOf(handle))
  if (kind === 'express') {
    const app = express()
    app.use(requireExpressPayment(gate))
    app.use((request, response) => listenerOf(handle)(request, response))
    return createServer(app)
  }
  if (kind === 'fetch') {
    const paid = requireFetchPayment(gate)(async (request) => handle(await readRequest(request)))
    return createAdaptorServer({ fetch: (request) => paid(request) }) as Server
  }
  const app = new Hono<{ Variables: PaymentVariables }>()
  app.all('/*', requirePayment(gate), async (c) => handle(await readRequest(c.req.raw)))
  return createAdaptorServer({ fetch: app.fetch }) as Server
}

/** Returns a handler as a listener of `node:http`. */
export function listenerOf(handle: Handler): RequestListener {
  return async (request, response) => {
    const headers = new Headers()
    for (const [name, values = []] of Object.entries(request.headersDistinct))
      for (const value of values) headers.append(name, value)
    const { method = 'GET', url = '/' } = request
    const body = (await buffer(request)) as Buffer<ArrayBuffer>
    const answer = await handle({ method, url, headers, body })
    response.writeHead(answer.status, [...answer.headers].flat())
    response.end(Buffer.from(await answer.arrayBuffer()))
  }
}

/** Converts a Fetch request to the form that handlers take. */
export async function readRequest(request: Request): Promise<Served> {
  const { method, headers } = request
  const { pathname, search } = new URL(request.url)
  const body = Buffer.from(await request.arrayBuffer())
  return { method, url: pathname + search, headers, body }
}

/** Starts a server until the running test ends. */
export async function listen(server: Server): Promise<string> {
  server.listen(0, loopback)
  await once(server, 'listening')
  onTestFinished(async () => {
    server.closeAllConnections()
    server.close()
  })
  return `http://${loopback}:${(server.address() as AddressInfo).port}`
}
