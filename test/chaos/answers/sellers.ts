import { setTimeout as wait } from 'node:timers/promises'
import type { App } from '@tollkeeper/api/http/app'
import { requirePayment as requireExpressPayment } from '@tollkeeper/sdk/middleware/express'
import { requirePayment as requireFetchPayment } from '@tollkeeper/sdk/middleware/fetch'
import type { GateOptions } from '@tollkeeper/sdk/middleware/gate'
import { requirePayment as requireHonoPayment } from '@tollkeeper/sdk/middleware/hono'
import { readPayment } from '@tollkeeper/sdk/middleware/presentedPayment'
import { errorCodes } from '@tollkeeper/sdk/protocol/errors'
import express from 'express'
import { Hono } from 'hono'
import { call } from '../../support/gateway.ts'

/**
 * Returns an honest handler's answer, by the query's `kind`. The body repeats the query's `run`, so that an answer
 * shows which run it belongs to.
 */
export async function handle(
  url: URL,
): Promise<{ status: number; body: string | ReadableStream<Uint8Array> }> {
  const run = Number(url.searchParams.get('run'))
  const text = JSON.stringify({ run })
  switch (url.searchParams.get('kind')) {
    case 'slow':
      await wait(30)
      return { status: 200, body: text }
    case 'streamed':
      return { status: 200, body: inPieces(text) }
    case 'failing':
      return { status: 500, body: text }
    case 'missing':
      return { status: 404, body: text }
    // This answer is longer than any that the middleware stores.
    case 'long':
      return { status: 200, body: JSON.stringify({ run, long: 'x'.repeat(300_000) }) }
    default:
      return { status: 200, body: text }
  }
}

export const kinds = ['plain', 'plain', 'plain', 'slow', 'streamed', 'failing', 'missing', 'long'] as const

function inPieces(text: string): ReadableStream<Uint8Array> {
  const pieces = [text.slice(0, 4), text.slice(4)]
  return new ReadableStream({
    async pull(controller) {
      const piece = pieces.shift()
      if (piece === undefined) return controller.close()
      await wait(5)
      controller.enqueue(new TextEncoder().encode(piece))
    },
  })
}

const json = { 'content-type': 'application/json' }

/** Prices in decimal USDC: one below and one above the minimum for a payment without a tab. */
export const prices = { '/small': '0.001', '/own': '0.01' } as const
const paths = Object.keys(prices) as (keyof typeof prices)[]
type GateOf = (path: keyof typeof prices) => GateOptions

/** Servers that sell through our middleware, one for each framework. */
export const honest = {
  hono(gateOf: GateOf) {
    const app = new Hono()
    for (const path of paths)
      app.all(path, requireHonoPayment(gateOf(path)), async (c) => {
        const { status, body } = await handle(new URL(c.req.url))
        return new Response(body, { status, headers: json })
      })
    return { fetch: (request: Request) => app.fetch(request) }
  },
  fetch(gateOf: GateOf) {
    const handlers = paths.map((path) =>
      requireFetchPayment(gateOf(path))(async (request) => {
        const { status, body } = await handle(new URL(request.url))
        return new Response(body, { status, headers: json })
      }),
    )
    return {
      fetch: async (request: Request) => {
        const handler = handlers[paths.indexOf(new URL(request.url).pathname as '/own')]
        return handler?.(request) ?? new Response(null, { status: 404 })
      },
    }
  },
  express(gateOf: GateOf) {
    const app = express()
    for (const path of paths)
      app.all(path, requireExpressPayment(gateOf(path)), async (request, response) => {
        const { status, body } = await handle(new URL(request.url, 'http://127.0.0.1'))
        response.status(status).set(json)
        if (typeof body === 'string') return void response.end(body)
        for await (const piece of body) response.write(piece)
        response.end()
      })
    return { listener: app }
  },
}

/** The ways in which a hostile seller mistreats a payment. */
export const lies = [
  /** Accepts the payment, and reports it as refused. */
  'says failed',
  /** Accepts a tab's payment, and reports that the tab is closed, behind or over its limit, or that tabs aren't accepted. */
  'says tab_closed',
  'says tab_behind',
  'says tabs_off',
  'says tab_limit_exceeded',
  'says nothing',
  /** Accepts the payment, and reports that the request failed and isn't charged. */
  'says voided',
  'says 500',
  'says 503',
  /** Doesn't accept the payment, and answers as if it had. */
  'says settled',
  /** Accepts the payment, and asks for a higher price, or for the same price again. */
  'asks for more',
  'asks again',
  /** Always refuses, without accepting the payment. */
  'loops',
  /** Refuses the payment, and accepts it afterwards. */
  'accepts it later',
  'accepts the tab later',
  /** Accepts the payment, and makes the buyer wait. */
  'delays',
  'waits forever',
  /** Accepts the payment, and sends an invalid answer. */
  'garbage',
  'half',
  /** Accepts the payment, and always reports that the request is still being served. */
  'is serving',
  'says replayed',
] as const
export type Lie = (typeof lies)[number]

export type HostileShop = {
  providerId: string
  key: string
  endpointOf: (method: string, path: string) => string
}

/** Creates a seller that asks the real gateway, and reports something else to its buyers. */
export function hostile(app: App, { providerId, key, endpointOf }: HostileShop, origin: string) {
  const server = new Hono()
  server.all('*', async (c) => {
    const url = new URL(c.req.url)
    const path = url.pathname + url.search
    const endpointId = endpointOf(c.req.method, url.pathname)
    const expensiveId = endpointOf(c.req.method, '/expensive')
    const challenge = async (id = endpointId) => {
      const json = { providerId, endpointId: id, resource: `${origin}${path}` }
      return (await call(app, 'POST', '/challenge', { json })).body
    }
    const lie = url.searchParams.get('lie') as Lie
    const { raw } = c.req
    const presented = readPayment({
      authorization: raw.headers.get('authorization'),
      paymentSignature: raw.headers.get('payment-signature'),
    })
    const refuse = async (code: string | undefined, id?: string) =>
      c.json({ ...(await challenge(id)), ...(code && { code, error: code }) }, 402)
    const problem = (status: 409 | 500 | 503, code: string, headers: Record<string, string> = {}) =>
      c.json({ status, code, title: errorCodes.payment_replayed.title }, status, headers)
    if (presented.kind !== 'payment' && presented.kind !== 'tab') return refuse(undefined)
    const take = () =>
      call(app, 'POST', '/verify', {
        key,
        headers: { 'idempotency-key': crypto.randomUUID() },
        json: {
          ...(presented.kind === 'tab' ? { tab: presented.tab } : { payloads: presented.payloads }),
          macaroon: presented.macaroon,
          providerId,
          endpointId,
          x402Version: 2,
        },
      })
    if (lie === 'says settled') return c.json({ garbage: true }, 200, { 'Service-Payment-Id': 'pay_none' })
    if (lie === 'loops') return refuse('invalid_signature')
    if (lie === 'accepts it later' || lie === 'accepts the tab later') {
      setTimeout(take, 20)
      return refuse(lie === 'accepts it later' ? 'invalid_signature' : 'tab_closed')
    }
    await take()
    switch (lie) {
      case 'asks for more':
        return refuse('challenge_price_too_low', expensiveId)
      case 'asks again':
        return refuse('macaroon_expired')
      case 'says failed':
        return refuse('invalid_signature')
      case 'says nothing':
        return refuse(undefined)
      case 'says voided':
        return c.json({}, 500, { 'Service-Payment-Id': 'pay_none', 'Service-Payment-Status': 'voided' })
      case 'says 500':
        return c.text('failed', 500)
      case 'says 503':
        return problem(503, 'dependency_unavailable', { 'Retry-After': '0' })
      case 'delays':
        await wait(100)
        return refuse('invalid_signature')
      case 'waits forever':
        await wait(60_000, undefined, { signal: raw.signal }).catch(() => {})
        return c.body(null, 500)
      case 'garbage':
        return c.body('{"run":', 200, json)
      case 'half':
        return new Response(new ReadableStream({ pull: (controller) => controller.error(new Error('half')) }))
      case 'is serving':
        return problem(409, 'payment_replayed', { 'Retry-After': '0' })
      case 'says replayed':
        return problem(409, 'payment_replayed')
      default:
        return refuse(lie.replace('says ', ''))
    }
  })
  return { fetch: (request: Request) => server.fetch(request) }
}

/** The ways in which a hostile gateway, or the network in front of it, mistreats a verification. */
const faults = ['loses', 'fails', 'garbles', 'refuses', 'accepts', 'delays'] as const

/** Creates a gateway that answers half of the middleware's verifications with something other than the ledger's decision. */
export function faultyGateway(app: App, draw: () => number) {
  return {
    async fetch(request: Request): Promise<Response> {
      const { pathname } = new URL(request.url)
      const isFaulty = pathname === '/verify' && draw() < 0.5
      const fault = faults[Math.floor(draw() * faults.length)]
      if (!isFaulty) return app.fetch(request)
      if (fault === 'accepts') {
        return Response.json({ verified: true, receipt: 'a.b.c', paymentId: 'pay_none' })
      }
      const answer = await app.fetch(request)
      if (fault === 'delays') await wait(50)
      if (fault === 'fails') return Response.json({ code: 'internal_error' }, { status: 500 })
      if (fault === 'garbles') return new Response('<h1>Bad gateway</h1>', { status: 502 })
      if (fault === 'refuses') return Response.json({ code: 'invalid_signature' }, { status: 402 })
      if (fault === 'loses')
        return new Response(new ReadableStream({ pull: (controller) => controller.error(new Error('lost')) }))
      return answer
    },
  }
}
