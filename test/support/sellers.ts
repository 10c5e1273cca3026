/** Sellers of x402 as they exist on the internet, correct and faulty. Each is a real server. */
import { once } from 'node:events'
import { readFile } from 'node:fs/promises'
import { createServer, type RequestListener, type ServerResponse } from 'node:http'
import { createServer as createTlsServer } from 'node:https'
import { type AddressInfo, createServer as createTcpServer, type Server, type Socket } from 'node:net'
import { getCACertificates, setDefaultCACertificates } from 'node:tls'
import { encodePaymentHeader } from '@tollkeeper/sdk/protocol/x402'

export type SellerTerms = { network: string; asset: string; payTo: string }

export type SellerKind = (terms: SellerTerms, url: () => string) => RequestListener

type Changes = { offer?: object; resource?: object; required?: object }

/** Returns the challenge of x402 v2 that a good seller sends. */
export function requiredBy({ network, asset, payTo }: SellerTerms, url: string, changes: Changes = {}) {
  return {
    x402Version: 2,
    error: 'Payment required',
    resource: { url, description: 'The tides of today', mimeType: 'application/json', ...changes.resource },
    accepts: [
      {
        scheme: 'exact',
        network,
        amount: '10000',
        asset,
        payTo,
        maxTimeoutSeconds: 60,
        extra: { name: 'USD Coin', version: '2' },
        ...changes.offer,
      },
    ],
    extensions: {
      bazaar: {
        info: { input: { type: 'http', method: 'GET' }, output: { type: 'json', example: { tide: 'low' } } },
        schema: { type: 'object' },
      },
    },
    ...changes.required,
  }
}

const open = {
  'access-control-allow-origin': '*',
  'access-control-allow-headers': 'PAYMENT-SIGNATURE, Content-Type',
  'access-control-expose-headers': 'PAYMENT-REQUIRED',
}

function demand(response: ServerResponse, required: object, headers: object = open, body = '{}'): void {
  response.writeHead(402, { ...headers, 'PAYMENT-REQUIRED': encodePaymentHeader(required) }).end(body)
}

/** A seller that requests payment, and does everything that browsers and catalogs check. */
export const goodSeller =
  (changes: Changes = {}): SellerKind =>
  (terms, url) =>
  (request, response) => {
    if (request.method === 'OPTIONS') response.writeHead(204, open).end()
    else demand(response, requiredBy(terms, url() + (request.url ?? ''), changes))
  }

/** Returns a seller that gives the same response to every request. */
const answering =
  (status: number, headers: Record<string, string> = {}, body = ''): SellerKind =>
  () =>
  (_, response) =>
    void response.writeHead(status, headers).end(body)

const cloudflare = { server: 'cloudflare', 'cf-ray': '8a', 'content-type': 'text/html; charset=UTF-8' }

/** Faulty sellers, by the code of the problem that a check of the seller finds. */
export const badSellers = {
  serves_unpaid: answering(200, { 'content-type': 'application/json' }, '{"tide":"low"}'),
  redirects: answering(301, { location: 'http://tides.example/today' }),
  asks_for_login: answering(401, { 'www-authenticate': 'Bearer' }),
  blocked: answering(403, cloudflare, '<title>Just a moment...</title>'),
  forbidden: answering(403, { 'content-type': 'application/json' }, '{}'),
  not_found: answering(404),
  method_not_allowed: answering(405),
  checks_input_first: answering(422, {}, '{"error":"city is missing"}'),
  rate_limited: answering(429),
  server_error: answering(500, {}, 'oops'),
  unexpected_status: answering(418),
  no_challenge: answering(402, {}, '{"error":"pay"}'),
  not_usdc: goodSeller({ offer: { asset: `0x${'c'.repeat(40)}` } }),
  unknown_network: goodSeller({ offer: { network: 'eip155:56' } }),
  invalid_amount: goodSeller({ offer: { amount: '0.01' } }),
  invalid_pay_to: goodSeller({ offer: { payTo: 'tides.eth' } }),
  invalid_timeout: goodSeller({ offer: { maxTimeoutSeconds: 0 } }),
  wrong_domain: goodSeller({ offer: { extra: { name: 'USDC' } } }),
  other_scheme: goodSeller({ offer: { scheme: 'upto' } }),
  resource_elsewhere: goodSeller({ resource: { url: 'http://internal.example/today' } }),
  resource_differs: (terms, url) => (_, response) =>
    demand(response, requiredBy(terms, `${url()}/elsewhere`)),
  description_too_long: goodSeller({ resource: { description: 'x'.repeat(501) } }),
  no_description: goodSeller({ resource: { description: '' } }),
  description_invalid: goodSeller({ required: { extensions: { bazaar: { info: {}, schema: {} } } } }),
  not_described: goodSeller({ required: { extensions: {} } }),
  service_fields_dropped: goodSeller({ resource: { serviceName: 'x'.repeat(33) } }),
  header_unreadable: (terms, url) => (_, response) =>
    void response
      .writeHead(402, { ...open, 'payment-required': 'not base64 of JSON' })
      .end(JSON.stringify(requiredBy(terms, url()))),
  no_header: (terms, url) => (_, response) =>
    void response.writeHead(402, open).end(JSON.stringify(requiredBy(terms, url()))),
  body_cut: (terms, url) => (_, response) =>
    demand(response, requiredBy(terms, url()), open, 'x'.repeat(10_485_760)),
  no_cors: (terms, url) => (_, response) => demand(response, requiredBy(terms, url()), {}),
  headers_not_exposed: (terms, url) => (_, response) =>
    demand(response, requiredBy(terms, url()), { 'access-control-allow-origin': '*' }),
  preflight_fails: (terms, url) => (_, response) => demand(response, requiredBy(terms, url())),
  head_differs: (terms, url) => (request, response) => {
    if (request.method === 'HEAD') response.writeHead(200).end()
    else demand(response, requiredBy(terms, url()))
  },
  headers_too_large: answering(402, { 'payment-required': 'x'.repeat(70_000) }),
  timeout: () => () => {},
} as const satisfies Record<string, SellerKind>

export type RunningSeller = { url: string; close: () => Promise<void> }

/** Starts a seller. */
export async function startSeller(kind: SellerKind, terms: SellerTerms): Promise<RunningSeller> {
  let url = ''
  const server = createServer(kind(terms, () => url))
  const running = await listen(server)
  url = running.url
  return running
}

/** Starts a server that sends the bytes of an answer one by one, and never finishes it. */
export async function startSlowSeller(head: string): Promise<RunningSeller> {
  const server = createTcpServer((socket) => {
    let at = 0
    const timer = setInterval(() => void socket.write(head[at++ % head.length] ?? ' '), 20)
    socket.on('close', () => clearInterval(timer)).on('error', () => {})
  })
  return listen(server)
}

/** Starts a server that doesn't speak HTTP. */
export function startNoHttp(): Promise<RunningSeller> {
  return listen(createTcpServer((socket) => void socket.on('error', () => {}).end('SSH-2.0-OpenSSH_9.9\r\n')))
}

/**
 * Starts a good seller whose certificate expired in 2020. All clients of this process trust its authority
 * until it is closed.
 */
export async function startExpiredSeller(terms: SellerTerms): Promise<RunningSeller> {
  const [cert, key] = await Promise.all(
    ['expired.pem', 'expired.key'].map((name) => readFile(new URL(`./tls/${name}`, import.meta.url), 'utf8')),
  )
  const before = getCACertificates('default')
  setDefaultCACertificates([...before, cert ?? ''])
  let url = ''
  const { url: plain, close } = await listen(
    createTlsServer(
      { cert, key },
      goodSeller()(terms, () => url),
    ),
  )
  url = plain.replace('http://127.0.0.1', 'https://localhost')
  return {
    url,
    async close() {
      setDefaultCACertificates(before)
      await close()
    },
  }
}

async function listen(server: Server): Promise<RunningSeller> {
  const sockets = new Set<Socket>()
  server.on('connection', (socket: Socket) => {
    sockets.add(socket)
    socket.once('close', () => sockets.delete(socket))
  })
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  return {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    async close() {
      server.close()
      for (const socket of sockets) socket.destroy()
      await once(server, 'close')
    },
  }
}
