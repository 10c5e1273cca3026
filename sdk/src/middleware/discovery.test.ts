import { once } from 'node:events'
import { createServer, type Server } from 'node:http'
import express from 'express'
import { Hono } from 'hono'
import { afterAll, beforeAll, beforeEach, describe, expect, test, vi } from 'vitest'
import { urlOf } from '../../test/serve.ts'
import { createDiscovery, type DiscoveryOptions } from './discovery.ts'
import { serveDiscovery as serveExpress } from './express.ts'
import { serveDiscovery as serveFetch } from './fetch.ts'
import { serveDiscovery as serveHono } from './hono.ts'

// These tests use a simulated gateway. api/views/discovery.test.ts tests the real gateway's responses, and test/e2e/found.test.ts tests the
// middleware with the real gateway.
const sales = {
  origin: 'https://api.example',
  openapi: {
    openapi: '3.1.0',
    info: { title: 'Weather' },
    paths: {
      '/weather': {
        get: { summary: 'The weather', responses: { 402: {} }, 'x-payment-info': { price: {} } },
      },
    },
    'x-service-info': { categories: ['weather'] },
  },
  x402: { version: 1, resources: ['https://api.example/weather'] },
  llms: '# Weather\n',
}
let gateway: Server
let gatewayUrl: string
let answer: { status: number; body: object }
let asked: string[]

beforeAll(async () => {
  gateway = createServer((request, response) => {
    asked.push(request.url ?? '')
    response.writeHead(answer.status, { 'content-type': 'application/json' }).end(JSON.stringify(answer.body))
  })
  await once(gateway.listen(0, '127.0.0.1'), 'listening')
  gatewayUrl = urlOf(gateway)
})
afterAll(() => gateway.close())
beforeEach(() => {
  asked = []
  answer = { status: 200, body: sales }
})

const paths = ['/openapi.json', '/.well-known/x402', '/llms.txt']

describe.each<
  [string, (options: DiscoveryOptions) => (path: string, init?: RequestInit) => Promise<Response>]
>([
  [
    'hono',
    (options) => {
      const app = new Hono().use(serveHono(options)).all('*', (c) => c.text('mine'))
      return async (path, init) => app.request(path, init)
    },
  ],
  [
    'fetch',
    (options) => {
      const discovery = serveFetch(options)
      return async (path, init) =>
        (await discovery(new Request(new URL(path, 'http://localhost'), init))) ?? new Response('mine')
    },
  ],
  [
    'express',
    (options) => {
      const app = express()
        .use(serveExpress(options))
        .use((_, response) => void response.send('mine'))
      return async (path, init) => {
        const server = app.listen(0, '127.0.0.1')
        await once(server, 'listening')
        try {
          const response = await fetch(new URL(path, urlOf(server as Server)), init)
          return new Response(await response.text(), response)
        } finally {
          server.close()
        }
      }
    },
  ],
])('serveDiscovery of %s', (_, serve) => {
  test('default: serves the three documents, and lets other requests pass', async () => {
    const ask = serve({ gatewayUrl, providerId: 'prov_1' })
    const answers = await Promise.all(paths.map((path) => ask(path)))
    expect(answers.map(({ status }) => status)).toEqual([200, 200, 200])
    expect(await answers[0]?.json()).toEqual(sales.openapi)
    expect(await answers[1]?.json()).toEqual(sales.x402)
    expect(await answers[2]?.text()).toBe(sales.llms)
    expect(answers[2]?.headers.get('content-type')).toContain('text/plain')
    expect(await (await ask('/weather')).text()).toBe('mine')
    expect(await (await ask('/openapi.json', { method: 'POST' })).text()).toBe('mine')
    expect(await (await ask('/llms.txt', { method: 'HEAD' })).text()).toBe('')
    expect(asked).toEqual(['/discovery/providers/prov_1'])
  })
})

describe('createDiscovery', () => {
  const read = async (discovery: ReturnType<typeof createDiscovery>, path = '/llms.txt') =>
    (await discovery.answer({
      method: 'GET',
      url: `http://${'x'.repeat(Math.random() * 9 + 1)}.example${path}`,
    })) as {
      status: number
      body: string
    }

  test('args: takes the origin from publicUrl, never from a request', async () => {
    const discovery = createDiscovery({
      gatewayUrl,
      providerId: 'prov/1',
      publicUrl: 'https://api.example/base',
    })
    for (let count = 0; count < 5; count++) await read(discovery)
    expect(asked).toEqual(['/discovery/providers/prov%2F1?origin=https%3A%2F%2Fapi.example'])
  })

  test('args: openapi keeps the provider’s document, and adds the prices', async () => {
    const own = {
      openapi: '3.1.0',
      info: { title: 'Mine' },
      paths: {
        '/weather': { get: { summary: 'Mine', responses: { 200: {} } }, post: { summary: 'Free' } },
        '/free': { get: {} },
      },
    }
    const { body } = await read(
      createDiscovery({ gatewayUrl, providerId: 'prov_1', openapi: own }),
      '/openapi.json',
    )
    expect(JSON.parse(body)).toEqual({
      ...own,
      'x-service-info': { categories: ['weather'] },
      paths: {
        '/weather': {
          get: { summary: 'Mine', responses: { 200: {}, 402: {} }, 'x-payment-info': { price: {} } },
          post: { summary: 'Free' },
        },
        '/free': { get: {} },
      },
    })
  })

  test('behavior: serves the last documents while the gateway is unreachable, and responds with 503 if there are none', async () => {
    vi.useFakeTimers({ toFake: ['Date'] })
    try {
      answer = { status: 500, body: {} }
      const discovery = createDiscovery({ gatewayUrl, providerId: 'prov_1' })
      expect((await read(discovery)).status).toBe(503)
      expect((await read(discovery)).status).toBe(503)
      expect(asked).toHaveLength(1)
      answer = { status: 200, body: sales }
      vi.advanceTimersByTime(5_001)
      expect((await read(discovery)).status).toBe(200)
      answer = { status: 200, body: { llms: 7 } }
      vi.advanceTimersByTime(60_001)
      expect(await read(discovery)).toMatchObject({ status: 200, body: sales.llms })
      await vi.waitFor(() => expect(asked).toHaveLength(3))
      expect(await read(discovery)).toMatchObject({ status: 200, body: sales.llms })
    } finally {
      vi.useRealTimers()
    }
  })

  test('error: rejects options without a gateway or a provider', () => {
    expect(() => createDiscovery({ gatewayUrl: 'gateway', providerId: 'prov_1' })).toThrow(TypeError)
    expect(() => createDiscovery({ gatewayUrl, providerId: '' })).toThrow(TypeError)
  })
})
