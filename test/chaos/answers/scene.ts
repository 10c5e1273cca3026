import { once } from 'node:events'
import { createServer, type RequestListener } from 'node:http'
import type { AddressInfo } from 'node:net'
import { getRequestListener, type Http2Bindings, type HttpBindings } from '@hono/node-server'
import type { App } from '@tollkeeper/api/http/app'
import { createClient } from '@tollkeeper/sdk/client/createClient'
import type { PaymentOptions } from '@tollkeeper/sdk/client/paymentFlow'
import { wrapFetch } from '@tollkeeper/sdk/client/wrapFetch'
import { parseAuthorizationHeader } from '@tollkeeper/sdk/protocol/authorizationHeader'
import { parsePayload } from '@tollkeeper/sdk/protocol/payload'
import { parsePaymentHeader } from '@tollkeeper/sdk/protocol/x402'
import { generatePrivateKey, privateKeyToAddress } from 'viem/accounts'
import { call, startGateway, type TestGateway } from '../../support/gateway.ts'
import { type Cut, startCutter } from './cutter.ts'
import { faultyGateway, type HostileShop, handle, honest, hostile, prices } from './sellers.ts'

export type Seller = { name: string; isHostile: boolean; url: string }

/** Observations of the buyers' `fetch` during one run. */
export type Seen = {
  /** Payments that were presented, by nonce or by tab and sequence. */
  presented: Set<string>
  /** The points at which the run's paid requests are cut, in order. */
  cuts: (Cut | undefined)[]
  /** The result of each request, in order, to explain a fault. */
  story: string[]
  /** Duration of the run's slowest answer, in ms. */
  slowest: number
  /** The last request that carried a payment. */
  last?: { url: string; init: RequestInit } | undefined
}

export type Buyer = {
  name: string
  keepsTabs: boolean
  ask: (url: string, init: { method: string; body?: string; timeout: number }) => Promise<Asked>
}

export type Asked = { status: number; body: unknown; isVoided?: boolean }

export type AnswersScene = {
  gateway: TestGateway
  sellers: Seller[]
  buyers: Buyer[]
  seen: Map<number, Seen>
  close: () => Promise<void>
}

type Served =
  | { fetch: (request: Request, env: HttpBindings | Http2Bindings) => Response | Promise<Response> }
  | { listener: RequestListener }

async function listen(app: Served): Promise<{ port: number; close: () => Promise<void> }> {
  const server = createServer('fetch' in app ? getRequestListener(app.fetch) : app.listener)
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  return {
    port: (server.address() as AddressInfo).port,
    close: async () => {
      server.closeAllConnections()
      server.close()
      await once(server, 'close')
    },
  }
}

/**
 * Starts one gateway in this process, sellers of all kinds behind proxies that cut connections, and buyers with both
 * clients, with and without tabs.
 */
export async function openAnswersScene(draw: () => number): Promise<AnswersScene> {
  const plenty = 10n ** 12n
  const tabs = {
    credit: { base: plenty, basisPoints: 1_000n },
    budget: plenty,
    rewardShare: 1_000,
    earnedHours: 1,
  }
  const gateway = await startGateway({ tabs })
  const closing: (() => Promise<void>)[] = []
  /** Starts a server behind a proxy that cuts connections, and passes the proxy's URL to `make`. */
  const open = async (make: (url: string) => Promise<Served> | Served): Promise<string> => {
    let port = 0
    const cutter = await startCutter(() => port)
    const server = await listen(await make(cutter.url))
    port = server.port
    closing.unshift(cutter.close, server.close)
    return cutter.url
  }

  let app: App = gateway.app
  const issuer = await open((url) => {
    app = gateway.another({ issuer: url })
    // If the upstream's answer breaks off, the proxy breaks its own answer off as well.
    return { fetch: (request, env) => app.fetch(request, env) }
  })
  const sellers: Seller[] = []
  const sell = async (name: string, kind: keyof typeof honest, gatewayUrl = issuer) => {
    const url = await open(async (origin) => {
      const { providerId, key: apiKey } = await openShop(app, origin)
      const gate = { gatewayUrl, providerId, apiKey, timeout: 8_000, warn: () => {} }
      return honest[kind]((path) => ({ ...gate, pricing: { usdcPerUnit: prices[path] } }))
    })
    sellers.push({ name, isHostile: false, url })
  }
  await sell('hono', 'hono')
  await sell('fetch', 'fetch')
  await sell('express', 'express')
  await sell('faulty gateway', 'hono', await open(() => faultyGateway(app, draw)))
  const proxied = await openProxied(app, issuer, open)
  sellers.push({ name: 'proxy', isHostile: false, url: proxied })
  const liar = await open(async (origin) => hostile(app, await openShop(app, origin), origin))
  sellers.push({ name: 'hostile', isHostile: true, url: liar })

  const seen = new Map<number, Seen>()
  return {
    gateway,
    sellers,
    buyers: await openBuyers(gateway, issuer, seen),
    seen,
    close: async () => {
      for (const close of closing) await close()
      await gateway.close()
    },
  }
}

async function openShop(app: App, origin: string): Promise<HostileShop> {
  const { body } = await call<{ providerId: string; apiKey: string }>(app, 'POST', '/providers', {
    json: { name: 'Shop' },
  })
  const { providerId, apiKey: key } = body
  const add = async (path: string, json: object) =>
    (await call<Record<string, string>>(app, 'POST', `/providers/${providerId}/${path}`, { json, key })).body
  await add('wallets', { network: 'localhost', address: privateKeyToAddress(generatePrivateKey()) })
  const ids: Record<string, string> = {}
  for (const [path, usdcPerUnit] of Object.entries({ ...prices, '/expensive': '0.05' }))
    for (const method of ['GET', 'POST']) {
      const endpoint = { url: `${origin}${path}`, method, pricing: { usdcPerUnit } }
      ids[`${method} ${path}`] = (await add('endpoints', endpoint)).endpointId ?? ''
    }
  return { providerId, key, endpointOf: (method, path) => ids[`${method} ${path}`] ?? '' }
}

/** Registers a provider that runs none of our code: the gateway's proxy sells its answers. Returns the provider's URL at the gateway. */
async function openProxied(
  app: App,
  issuer: string,
  open: (make: () => Served) => Promise<string>,
): Promise<string> {
  const upstream = await open(() => ({
    fetch: async (request) => {
      const { status, body } = await handle(new URL(request.url))
      return new Response(body, { status, headers: { 'content-type': 'application/json' } })
    },
  }))
  const { body } = await call<{ providerId: string; apiKey: string }>(app, 'POST', '/providers', {
    json: { name: 'Without code' },
  })
  const { providerId, apiKey: key } = body
  const send = (method: string, path: string, json: object) =>
    call(app, method, `/providers/${providerId}/${path}`, { json, key })
  await send('POST', 'wallets', { network: 'localhost', address: privateKeyToAddress(generatePrivateKey()) })
  await send('PUT', 'upstream', { url: upstream })
  for (const [url, usdcPerUnit] of Object.entries(prices))
    for (const method of ['GET', 'POST'])
      await send('POST', 'endpoints', { url, method, pricing: { usdcPerUnit } })
  return `${issuer}/p/${providerId}`
}

const wallets = 8

/** Creates clients and wrapped fetches for several wallets, with and without tabs. */
async function openBuyers(
  gateway: TestGateway,
  gatewayUrl: string,
  seen: AnswersScene['seen'],
): Promise<Buyer[]> {
  const fetch = watchingFetch(seen)
  const buyers: Buyer[] = []
  for (let n = 0; n < wallets; n++) {
    const account = await gateway.buyer(10n ** 12n)
    for (const tabs of [true, false]) {
      const options: PaymentOptions = {
        gatewayUrl,
        account,
        network: 'localhost',
        usdcAddress: gateway.served.token,
        split: 'onchain',
        limits: { perPayment: '1' },
        tabs,
      }
      const client = createClient({ ...options, fetch })
      const wrapped = wrapFetch(fetch, { ...options, pendingTimeout: 1_000, warn: () => {} })
      const means = tabs ? 'on a tab' : 'without tabs'
      buyers.push({
        name: `createClient ${means}`,
        keepsTabs: tabs,
        ask: async (url, { method, body, timeout }) => {
          const options = { method: method as 'GET' | 'POST', ...(body !== undefined && { body }), timeout }
          const { status, data } = await client.request(url, options)
          return { status, body: data }
        },
      })
      buyers.push({
        name: `wrapFetch ${means}`,
        keepsTabs: tabs,
        ask: async (url, { timeout, ...init }) => {
          const response = await wrapped(url, { ...init, signal: AbortSignal.timeout(timeout) })
          const isVoided = response.headers.get('service-payment-status') === 'voided'
          return { status: response.status, body: parse(await response.text()), isVoided }
        },
      })
    }
  }
  return buyers
}

function parse(text: string): unknown {
  try {
    return JSON.parse(text)
  } catch {
    return text
  }
}

/** Returns a fetch that records the payments that a run presents, and asks the proxy to cut their connections. */
function watchingFetch(seen: AnswersScene['seen']): typeof fetch {
  return (input, init) => {
    const url = String(input)
    const one = seen.get(Number(/[?&]run=(\d+)/.exec(url)?.[1]))
    const headers = new Headers(init?.headers)
    const payment = one && keyOf(headers)
    if (!one) return fetch(input, init)
    if (payment === undefined) return recordAnswer(one, 'nothing', undefined, fetch(input, init))
    one.presented.add(payment)
    one.last = {
      url,
      init: { method: init?.method ?? 'GET', body: init?.body ?? null, headers: new Headers(headers) },
    }
    const cut = one.cuts.shift()
    if (cut) headers.set('x-cut', cut)
    return recordAnswer(one, payment, cut, fetch(input, { ...init, headers }))
  }
}

async function recordAnswer(
  one: Seen,
  payment: string,
  cut: Cut | undefined,
  answering: Promise<Response>,
): Promise<Response> {
  const began = performance.now()
  const record = (what: string) => {
    const ended = performance.now()
    one.slowest = Math.max(one.slowest, ended - began)
    const seconds = [began, ended].map((ms) => (ms / 1000).toFixed(1)).join('-')
    one.story.push(
      `${payment.slice(0, 12)}…${payment.slice(-6)} ${seconds}${cut ? ` (cut ${cut})` : ''}: ${what}`,
    )
  }
  try {
    const answer = await answering
    const { status, headers } = answer
    const said = status < 400 ? '' : (await answer.clone().text().catch(String)).slice(0, 200)
    record(
      [status, headers.get('service-payment-status'), headers.get('idempotent-replayed'), said].join(' '),
    )
    return answer
  } catch (error) {
    record(String((error as Error).cause ?? error))
    throw error
  }
}

/** Returns a payment's key in the ledger: its nonce, or its tab and sequence. */
function keyOf(headers: Headers): string | undefined {
  const own = parseAuthorizationHeader(headers.get('authorization'))
  if (own.kind === 'payment') return parsePayload(own.payloads[0]).nonce
  const header = headers.get('payment-signature')
  const payment = header === null ? undefined : parsePaymentHeader(header)
  return payment?.scheme === 'tab' ? `${payment.tab.tab} ${payment.tab.sequence}` : undefined
}

/** Returns the keys of all payments that the gateway's ledger has accepted and charges. */
export async function readLedger({ database }: Pick<TestGateway, 'database'>): Promise<Set<string>> {
  const [payments, requests] = await Promise.all([
    database<{ key: string }[]>`
      select a.nonce as key from signed_authorization a
      where half = 0 and not exists (select from payment_result o where o.payment_id = a.payment_id and kind in ('voided', 'failed'))`,
    database<{ key: string }[]>`
      select 'tab_' || encode(tab_id, 'hex') || ' ' || sequence as key from tabs.request
      where coalesce(charged, price) > 0`,
  ])
  return new Set([...payments, ...requests].map(({ key }) => key))
}
