import { once } from 'node:events'
import { connect } from 'node:net'
import { text } from 'node:stream/consumers'
import fastifyExpress from '@fastify/express'
import { requirePayment } from '@tollkeeper/sdk/middleware/express'
import fastify from 'fastify'
import { expect, onTestFinished, test } from 'vitest'
import { call } from '../support/gateway.ts'
import { useSellers } from './sellers.ts'

// The Express middleware inside Fastify, whose router reads paths differently. No spelling of a path may be
// served without payment.

const sellers = useSellers()

/** Opens Fastify with a paid prefix and routes of every kind. Each response contains the name of its route. */
async function openFastify() {
  const { providerId, apiKey } = await sellers.open('express', { registers: false })
  const app = fastify({
    routerOptions: { ignoreTrailingSlash: true, ignoreDuplicateSlashes: true, caseSensitive: false },
  })
  await app.register(fastifyExpress)
  const served: string[] = []
  app.use(
    '/paid',
    requirePayment({ gatewayUrl: sellers.state.url, providerId, apiKey, pricing: { usdcPerUnit: '0.05' } }),
  )
  for (const path of ['/paid', '/paid/data', '/paid/cities/:city', '/paid/files/*'])
    app.get(path, async (request) => {
      served.push(request.url)
      return 'served'
    })
  const origin = await app.listen({ port: 0, host: '127.0.0.1' })
  onTestFinished(() => app.close())
  for (const url of [`${origin}/paid`, `${origin}/paid/*`]) {
    const json = { url, method: 'GET', pricing: { usdcPerUnit: '0.05' } }
    await call(sellers.state.app, 'POST', `/providers/${providerId}/endpoints`, { key: apiKey, json })
  }
  return { origin, served }
}

/** Returns the status of a path exactly as written, which `fetch` would normalize. */
async function statusOf(origin: string, path: string): Promise<number> {
  const { hostname, port } = new URL(origin)
  const socket = connect(Number(port), hostname)
  await once(socket, 'connect')
  socket.write(`GET ${path} HTTP/1.1\r\nHost: ${hostname}\r\nConnection: close\r\n\r\n`)
  return Number((await text(socket)).split(' ')[1])
}

const prefixes = [
  '/paid',
  '/PAID',
  '/Paid',
  '//paid',
  '/paid/',
  '/%70aid',
  '/pai%64',
  '/paid%2f',
  '/./paid',
  '/x/../paid',
  '/%2e/paid',
]
const rests = [
  '',
  '/',
  '//',
  '/data',
  '/DATA',
  '//data',
  '/data/',
  '/%64ata',
  '/data%2f',
  '/cities/',
  '/cities//',
  '/cities/Bern',
  '/cities/%2e',
  '/cities/a%2fb',
  '/files/',
  '/files/../data',
  '/files/a;b',
  '/data?x=/free',
  '/data#x',
  '\\data',
]
const spellings = prefixes.flatMap((prefix) => rests.map((rest) => prefix + rest))

test('behavior: requires payment for every odd spelling of a paid path', async () => {
  const { origin, served } = await openFastify()
  const answered = await Promise.all(
    spellings.map(async (path): Promise<[string, number]> => [path, await statusOf(origin, path)]),
  )
  expect(served).toEqual([])
  expect(answered.filter(([, status]) => ![400, 402, 404].includes(status))).toEqual([])
  const statuses = new Map(answered)
  for (const path of [
    '/paid',
    '/paid/data',
    '/paid/DATA',
    '/paid/%64ata',
    '/paid/cities/',
    '/paid/data?x=/free',
  ])
    expect([path, statuses.get(path)]).toEqual([path, 402])
})
