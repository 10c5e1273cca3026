import { once } from 'node:events'
import { createServer, type Server } from 'node:http'
import type { AddressInfo } from 'node:net'
import { serve } from '@hono/node-server'
import { loopback, reservePort } from '@tollkeeper/runtime/port'
import { type Client, createClient } from '@tollkeeper/sdk/client/createClient'
import type { LimitOptions } from '@tollkeeper/sdk/client/limits'
import { signPayment } from '@tollkeeper/sdk/client/payment'
import type { PaymentOptions } from '@tollkeeper/sdk/client/paymentFlow'
import type { SignedExactPayment } from '@tollkeeper/sdk/client/signedPayment'
import { requirePayment as requireExpressPayment } from '@tollkeeper/sdk/middleware/express'
import { type PaidRequest, requirePayment as requireFastifyPayment } from '@tollkeeper/sdk/middleware/fastify'
import { requirePayment as requireFetchPayment } from '@tollkeeper/sdk/middleware/fetch'
import {
  exposedHeaders,
  type GateOptions,
  type PaymentVariables,
  requirePayment,
} from '@tollkeeper/sdk/middleware/hono'
import { parseUsdc } from '@tollkeeper/sdk/protocol/amount'
import { encodeAuthorizationHeader } from '@tollkeeper/sdk/protocol/authorizationHeader'
import { challengeMediaType, parseChallenge } from '@tollkeeper/sdk/protocol/challenge'
import { networkByName } from '@tollkeeper/sdk/protocol/networks'
import express from 'express'
import fastify from 'fastify'
import { type Context, Hono } from 'hono'
import { cors } from 'hono/cors'
import type { Address, Hex } from 'viem'
import { generatePrivateKey, privateKeyToAccount, privateKeyToAddress } from 'viem/accounts'
import { type RegisteredProvider, registerProvider } from '../../apps/devstack/stack/registerProvider.ts'
import type { Stack } from '../../apps/devstack/stack/stack.ts'
import { startTlsProxy } from './tlsProxy.ts'
import { tokenOf } from './usdc.ts'

export type Shop = RegisteredProvider & {
  /** The wallet that is paid. */
  address: Address
  /** The protected resource. */
  url: string
  /** Number of times that the handler behind the middleware ran. */
  served: () => number
  close: () => Promise<void>
}

/**
 * Opens a shop without code: the gateway sells the responses of the provider's own server. The stack's api must permit private
 * upstreams.
 */
export async function openProxiedShop(
  stack: Stack,
  usdcPerUnit: string,
  upstream: { acceptX402V1?: boolean } = {},
): Promise<Shop> {
  const address = privateKeyToAddress(generatePrivateKey())
  const provider = await registerProvider({
    gatewayUrl: stack.api.url,
    name: 'Test API',
    network: stack.chain.network,
    address,
    endpoints: [],
  })
  let served = 0
  const server = createServer(({ headers }, response) => {
    served++
    const body = JSON.stringify({ verified: true, paymentId: headers['service-payment-id'] })
    response.setHeader('Content-Type', 'application/json').end(body)
  })
  server.listen(0, loopback)
  await once(server, 'listening')
  const { port } = server.address() as AddressInfo
  const send = async (method: string, path: string, body: object) => {
    const answer = await fetch(new URL(`/providers/${provider.providerId}/${path}`, stack.api.url), {
      method,
      headers: { 'content-type': 'application/json', authorization: `Bearer ${provider.apiKey}` },
      body: JSON.stringify(body),
    })
    if (!answer.ok) throw new Error(`${method} ${path}: ${await answer.text()}`)
    return (await answer.json()) as { endpointId?: string }
  }
  await send('PUT', 'upstream', { url: `http://${loopback}:${port}`, ...upstream })
  const endpoint = { url: '/data', method: 'GET', pricing: { usdcPerUnit } }
  const { endpointId = '' } = await send('POST', 'endpoints', { ...endpoint, walletId: provider.walletId })
  return {
    ...provider,
    endpointIds: [endpointId],
    address,
    url: `${stack.api.url}/p/${provider.providerId}/data`,
    served: () => served,
    close: async () => {
      server.closeAllConnections()
      server.close()
      await once(server, 'close')
    },
  }
}

/** The parts of a stack that a shop needs. */
export type ShopStack = { api: Pick<Stack['api'], 'url'>; chain: Pick<Stack['chain'], 'network'> }

type Handler = (c: Context<{ Variables: PaymentVariables }>) => Response | Promise<Response>

/** Opens a provider's API on the stack: registered over HTTP, with one route behind the real middleware. */
export async function openShop(
  stack: ShopStack,
  options: {
    /** The provider's name. Default `Test API`. */
    name?: string
    usdcPerUnit?: string
    handler?: Handler
    /** URL of the gateway that the middleware calls. Default: the stack's gateway. Tests of an unreachable gateway set a URL that nothing answers. */
    gatewayUrl?: string
    mockPayments?: boolean
    /** Gives the middleware the provider's key, so that it can void. Default true. */
    withKey?: boolean
    /** Timeout of the middleware in milliseconds. Default 20,000. */
    timeout?: number
    /** Further options of the middleware. */
    gate?: Partial<GateOptions>
    /** The middleware's framework. Default `hono`. */
    framework?: keyof typeof servers
    /** Puts the shop behind a proxy that terminates TLS. */
    tls?: boolean
    /** Lets pages of other origins pay. */
    crossOrigin?: boolean
    /** The path of another resource with the same price, next to `/data`. */
    otherPath?: string
  } = {},
): Promise<Shop> {
  const {
    name = 'Test API',
    usdcPerUnit = '0.01',
    mockPayments = false,
    withKey = true,
    timeout = 20_000,
  } = options
  const port = await reservePort()
  const origin = `http://${loopback}:${port}`
  const proxy = options.tls ? await startTlsProxy(origin) : undefined
  const url = `${proxy?.url ?? origin}/data`
  const otherUrl = options.otherPath && new URL(options.otherPath, url).href
  const address = privateKeyToAddress(generatePrivateKey())
  const provider = await registerProvider({
    gatewayUrl: stack.api.url,
    name,
    network: stack.chain.network,
    address,
    endpoints: [{ url, usdcPerUnit }, ...(otherUrl ? [{ url: otherUrl, usdcPerUnit }] : [])],
  })
  const gate: GateOptions = {
    gatewayUrl: options.gatewayUrl ?? stack.api.url,
    providerId: provider.providerId,
    pricing: { usdcPerUnit },
    mockPayments,
    timeout,
    ...(withKey && { apiKey: provider.apiKey }),
    ...options.gate,
  }
  let served = 0
  const count = () => {
    served++
  }
  const server = servers[options.framework ?? 'hono'](gate, port, count, options)
  await once(server, 'listening')
  return {
    ...provider,
    address,
    url,
    served: () => served,
    close: async () => {
      await proxy?.close()
      server.closeAllConnections()
      server.close()
      await once(server, 'close')
    },
  }
}

function serveHono(
  gate: GateOptions,
  port: number,
  count: () => void,
  { handler, otherPath, crossOrigin }: { handler?: Handler; otherPath?: string; crossOrigin?: boolean },
): Server {
  const app = new Hono<{ Variables: PaymentVariables }>()
  if (crossOrigin) app.use(cors({ origin: '*', exposeHeaders: exposedHeaders }))
  // Don't print errors that a handler throws on purpose.
  app.onError((_, c) => c.text('failed', 500))
  app.on('GET', ['/data', ...(otherPath ? [otherPath] : [])], requirePayment(gate), (c) => {
    count()
    return handler?.(c) ?? c.json(c.get('payment'))
  })
  return serve({ fetch: app.fetch, port, hostname: loopback }) as Server
}

function serveExpress(
  gate: GateOptions,
  port: number,
  count: () => void,
  { crossOrigin }: { crossOrigin?: boolean },
): Server {
  const app = express()
  if (crossOrigin) {
    app.use((request, response, next) => {
      response.set(corsHeaders)
      if (request.method === 'OPTIONS') response.status(204).end()
      else next()
    })
  }
  app.get('/data', requireExpressPayment(gate), (_, response) => {
    count()
    response.json(response.locals.payment)
  })
  return app.listen(port, loopback)
}

/** Serves a plain handler, like Next.js, Bun, Deno and Workers. */
function serveFetch(
  gate: GateOptions,
  port: number,
  count: () => void,
  { crossOrigin }: { crossOrigin?: boolean },
): Server {
  const paid = requireFetchPayment(gate)((_request, payment) => {
    count()
    return Response.json(payment)
  })
  const fetch = async (request: Request) => {
    const isPreflight = crossOrigin && request.method === 'OPTIONS'
    const response = isPreflight ? new Response(null, { status: 204 }) : await paid(request)
    if (crossOrigin)
      for (const [name, value] of Object.entries(corsHeaders)) response.headers.set(name, value)
    return response
  }
  return serve({ fetch, port, hostname: loopback }) as Server
}

/**
 * The headers with which a seller without a library lets pages of any origin pay. `*` would not cover
 * `Authorization`.
 */
const corsHeaders = {
  'Access-Control-Allow-Origin': '*',
  'Access-Control-Allow-Headers': 'Authorization, Content-Type',
  'Access-Control-Expose-Headers': exposedHeaders.join(),
}

function serveFastify(gate: GateOptions, port: number, count: () => void): Server {
  const app = fastify()
  app.get('/data', { preHandler: requireFastifyPayment(gate) }, async (request) => {
    count()
    return (request as typeof request & PaidRequest).payment
  })
  const server = createServer((request, response) => app.routing(request, response))
  void app.ready().then(() => server.listen(port, loopback))
  return server
}

const servers = { hono: serveHono, express: serveExpress, fastify: serveFastify, fetch: serveFetch }

/** Opens the shops that support/attacks.ts attacks; the stack has SETTLE_BEFORE_SERVE_USDC=10. */
export async function openAttackedShops(stack: Stack) {
  const open = async (usdcPerUnit: string, options: Partial<Parameters<typeof openShop>[1]> = {}) => {
    let task: () => Promise<unknown> = async () => {}
    const handler: Handler = async (c) => {
      await task()
      return c.json(c.get('payment'))
    }
    // Don't let the middleware repeat stored responses, so that each paid response is a purchase.
    const gate = { answers: false } as const
    const shop = await openShop(stack, { usdcPerUnit, handler, timeout: 120_000, gate, ...options })
    return Object.assign(shop, {
      otherUrl: new URL('/other', shop.url).href,
      whileServing: (next: typeof task) => {
        task = next
      },
    })
  }
  const [cheap, dear, dearest] = await Promise.all([
    open('0.01', { otherPath: '/other' }),
    open('0.50', { framework: 'express' }),
    open('12'),
  ])
  return { cheap, dear, dearest }
}

export type TestBuyer = { address: Address; privateKey: Hex; client: Client }

/** Creates a wallet with some USDC, and a client that pays from it. */
export async function newBuyer(
  stack: Stack,
  usdc: string,
  options: LimitOptions & Pick<PaymentOptions, 'tabs' | 'onReceipt'> = {},
): Promise<TestBuyer> {
  const privateKey = generatePrivateKey()
  const address = privateKeyToAddress(privateKey)
  await stack.chain.mintUsdc([address], parseUsdc(usdc))
  const client = createClient({
    gatewayUrl: stack.api.url,
    network: stack.chain.network,
    walletPrivateKey: privateKey,
    usdcAddress: tokenOf(stack.chain),
    limits: { perPayment: '20' },
    timeout: 240_000,
    // Each request is a separate payment, unless a test is about tabs.
    tabs: false,
    ...options,
  })
  return { address, privateKey, client }
}

/** Signs a shop's challenge without presenting the payment. */
export async function signOnly(stack: Stack, shop: Shop, buyer: TestBuyer): Promise<SignedExactPayment> {
  const challenge = parseChallenge(await (await fetch(shop.url)).json())
  return signPayment(challenge, {
    payer: privateKeyToAccount(buyer.privateKey),
    network: networkByName(stack.chain.network),
    usdc: tokenOf(stack.chain),
    now: Date.now() / 1000,
  })
}

/** Presents a signed payment; each call presents it again. */
export function present(shop: Shop, payment: SignedExactPayment): Promise<Response> {
  // Sends our client's Accept header, because a stored answer is bound to what its buyer accepts.
  const accept = `*/*, ${challengeMediaType}`
  return fetch(shop.url, { headers: { authorization: encodeAuthorizationHeader(payment), accept } })
}
