import { once } from 'node:events'
import { createServer } from 'node:http'
import { connect } from 'node:net'
import { text } from 'node:stream/consumers'
import fastifyExpress from '@fastify/express'
import { requirePayment } from '@tollkeeper/sdk/middleware/express'
import fastify from 'fastify'
import { expect, onTestFinished, test } from 'vitest'
import { call } from '../support/gateway.ts'
import { listen, type SellerKind, sellerKinds, useSellers } from './sellers.ts'

// The buyer chooses the spelling of a path. A seller must not serve any spelling without payment, nor respond with a server
// fault.

const sellers = useSellers()
const pricing = { usdcPerUnit: '0.05' }

type Shop = { url: string; served: unknown[] }

/** Opens a seller of `/data` and of every other path. */
async function open(kind: SellerKind | 'fastify' | 'connect'): Promise<Shop> {
  const hasOwn = kind === 'fastify' || kind === 'connect'
  const seller = await sellers.open(hasOwn ? 'express' : kind)
  const { providerId, apiKey } = seller
  const url = kind === 'proxy' ? '/data' : `${new URL(seller.url).origin}/data`
  const json = { url, method: 'GET', pricing }
  const { status } = await call(sellers.state.app, 'POST', `/providers/${providerId}/endpoints`, {
    key: apiKey,
    json,
  })
  expect(status).toBe(201)
  const gate = { gatewayUrl: sellers.state.url, providerId, apiKey, pricing }
  if (kind === 'fastify') return openFastify(gate)
  return kind === 'connect' ? openConnect(gate) : seller
}

/**
 * Opens Fastify with the Express middleware, registered through `@fastify/express`. Fastify's router ignores case, a
 * trailing slash and duplicate slashes.
 */
async function openFastify(gate: Parameters<typeof requirePayment>[0]): Promise<Shop> {
  const app = fastify({
    routerOptions: { ignoreTrailingSlash: true, ignoreDuplicateSlashes: true, caseSensitive: false },
  })
  await app.register(fastifyExpress)
  const served: string[] = []
  app.use(requirePayment(gate))
  app.get('/*', async (request) => {
    served.push(request.url)
    return 'served'
  })
  const url = await app.listen({ port: 0, host: '127.0.0.1' })
  onTestFinished(() => app.close())
  return { url, served }
}

/** Opens the Express middleware on Node's own server, without a router. */
async function openConnect(gate: Parameters<typeof requirePayment>[0]): Promise<Shop> {
  const served: unknown[] = []
  const paid = requirePayment(gate)
  const url = await listen(
    createServer((request, response) =>
      paid(request, response, (error) => {
        served.push(error ?? request.url)
        response.end()
      }),
    ),
  )
  return { url, served }
}

/** Requests a path exactly as written, which `fetch` would normalize. */
async function statusOf(url: string, path: string): Promise<number> {
  const { hostname, port, pathname } = new URL(url)
  const socket = connect(Number(port), hostname)
  await once(socket, 'connect')
  const target = pathname.replace(/\/$/, '') + path
  socket.write(`GET ${target} HTTP/1.1\r\nHost: ${hostname}:${port}\r\nConnection: close\r\n\r\n`)
  return Number((await text(socket)).split(' ')[1])
}

/** The statuses that a path may get. The gateway returns 404 for paths that servers could read as another path. */
const spellings: [path: string, ...statuses: number[]][] = [
  ['/', 402],
  ['/data', 402],
  ['/data/', 402],
  ['/data?x=//', 402],
  ['/other/path', 402],
  ['/caf%C3%A9', 402],
  ['//', 404],
  ['//data', 404],
  ['///', 404],
  ['//other.example/data', 404],
  ['/data//', 404],
  ['/x//data', 404],
  ['/DATA', 404],
  ['/Data/', 404],
  ['/%64ata', 404],
  ['/%2f', 404],
  ['/%2F', 404],
  ['/data%2f', 404],
  ['/%2Fdata', 404],
  ['/a%2fb', 404],
  ['/..%2fdata', 404],
  ['/x/..%2Fdata', 404],
  ['/%252fdata', 404],
  ['/a%5cdata', 404],
  ['/a;b', 404],
  ['/data;x=1', 404],
  ['/x/..;/data', 404],
  ['/%00', 404],
  ['/data%00', 404],
  ['/data%0d%0a', 404],
  // Some servers reject a path that isn't UTF-8.
  ['/%', 400, 404],
  ['/%zz', 400, 404],
  ['/data%f', 400, 404],
  ['/%ff', 400, 404],
  ['/%C0%AFdata', 400, 404],
  // Servers that parse the URL see no dot segment, so they answer 402. At the gateway's proxy, the path may become the path of another
  // provider, which doesn't exist (404). The other servers reject the path with 400.
  ['/./data', 400, 402],
  ['/x/../data', 400, 402],
  ['/%2e%2e/data', 400, 402, 404],
  ['/x/%2E./data', 400, 402],
  ['/x\\..\\data', 400, 402],
  [`/${'a'.repeat(7_000)}`, 402],
  [`/${'a'.repeat(9_000)}`, 414],
  [`/${'/a'.repeat(40)}`, 404],
  [`/${'a'.repeat(20_000)}`, 414, 431],
]

test.each([...sellerKinds, 'fastify', 'connect'] as const)(
  'behavior: %s requires payment for every spelling of a path, and never answers 5xx',
  async (kind) => {
    const { url, served } = await open(kind)
    const answered = await Promise.all(
      spellings.map(async ([path, ...expected]) => ({ path, status: await statusOf(url, path), expected })),
    )
    expect(served).toEqual([])
    expect(answered.filter(({ status, expected }) => !expected.includes(status))).toEqual([])
  },
)
