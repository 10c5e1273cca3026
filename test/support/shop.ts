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
import { networks } from '@tollkeeper/sdk/protocol/networks'
import express from 'express'
import { type Context, Hono } from 'hono'
import { cors } from 'hono/cors'
import type { Address, Hex } from 'viem'
import { generatePrivateKey, privateKeyToAccount, privateKeyToAddress } from 'viem/accounts'
import { type RegisteredProvider, registerProvider } from '../../apps/devstack/stack/registerProvider.ts'
import type { Stack } from '../../apps/devstack/stack/stack.ts'
import { startTlsProxy } from './tlsProxy.ts'
import { tokenOf } from './usdc.ts'

export type Shop = RegisteredProvider & {
  /** Who is paid. */
  address: Address
  /** The protected resource. */
  url: string
  /** How often the handler behind the middleware ran. */
  served: () => number
  close: () => Promise<void>
}

/** One without code: the gateway sells what its own server answers. The stack's api must allow private upstreams. */
export async function openProxiedShop(
  stack: Stack,
  usdcPerUnit: string,
  upstream: { body?: 'x402-v1' } = {},
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

/** What a shop needs of a stack. */
export type ShopStack = { api: Pick<Stack['api'], 'url'>; chain: Pick<Stack['chain'], 'network'> }

type Handler = (c: Context<{ Variables: PaymentVariables }>) => Response | Promise<Response>

/** A provider's API on the stack: registered over HTTP, one route behind the real middleware. */
export async function openShop(
  stack: ShopStack,
  options: {
    usdcPerUnit?: string
    handler?: Handler
    /** Default: the stack's; another one for a gateway that can't be reached. */
    gatewayUrl?: string
    mockPayments?: boolean
    /** The middleware knows the provider's key, so that it can void. Default true. */
    withKey?: boolean
    /** Of the middleware, milliseconds. Default 20,000. */
    timeout?: number
    /** Further options of the middleware. */
    gate?: Partial<GateOptions>
    /** Which middleware. Default `hono`. */
    framework?: keyof typeof servers
    /** Behind a proxy that takes TLS off. */
    tls?: boolean
    /** Pages of other origins may pay. */
    crossOrigin?: boolean
    /** Another resource of the same price, beside `/data`. */
    otherPath?: string
  } = {},
): Promise<Shop> {
  const { usdcPerUnit = '0.01', mockPayments = false, withKey = true, timeout = 20_000 } = options
  const port = await reservePort()
  const origin = `http://${loopback}:${port}`
  const proxy = options.tls ? await startTlsProxy(origin) : undefined
  const url = `${proxy?.url ?? origin}/data`
  const otherUrl = options.otherPath && new URL(options.otherPath, url).href
  const address = privateKeyToAddress(generatePrivateKey())
  const provider = await registerProvider({
    gatewayUrl: stack.api.url,
    name: 'Test API',
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
  // What a handler throws on purpose needn't be printed.
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

/** A plain handler, as Next.js, Bun, Deno and Workers run it. */
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

/** Without a library: what a seller says to let pages of any origin pay. `*` would not cover `Authorization`. */
const corsHeaders = {
  'Access-Control-Allow-Origin': '*',
  'Access-Control-Allow-Headers': 'Authorization, Content-Type',
  'Access-Control-Expose-Headers': exposedHeaders.join(),
}

const servers = { hono: serveHono, express: serveExpress, fetch: serveFetch }

/** What support/attacks.ts attacks; the stack has SETTLE_BEFORE_SERVE_USDC=10. */
export async function openAttackedShops(stack: Stack) {
  const open = async (usdcPerUnit: string, options: Partial<Parameters<typeof openShop>[1]> = {}) => {
    let task: () => Promise<unknown> = async () => {}
    const handler: Handler = async (c) => {
      await task()
      return c.json(c.get('payment'))
    }
    // Who is answered a second time has bought nothing a second time; here only purchases count.
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

/** A wallet with some USDC, and a client that pays from it. */
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
    maxPaymentUsdc: '20',
    timeout: 240_000,
    // Each request is a payment of its own, unless a test is of tabs.
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
    network: networks[stack.chain.network],
    usdc: tokenOf(stack.chain),
    now: Date.now() / 1000,
  })
}

/** Presents a signed payment, as often as it's called. */
export function present(shop: Shop, payment: SignedExactPayment): Promise<Response> {
  // As our client asks, because a kept answer is bound to what its buyer accepts.
  const accept = `*/*, ${challengeMediaType}`
  return fetch(shop.url, { headers: { authorization: encodeAuthorizationHeader(payment), accept } })
}
