import fastify, { type FastifyInstance } from 'fastify'
import { describe, expect, onTestFinished, test } from 'vitest'
import { mockOptions as options, mockPaid as paid } from '../../test/signedPayment.ts'
import { askLiterally, spellings, unclearSpellings } from '../../test/spellings.ts'
import { type PaidRequest, requirePayment, serveDiscovery } from './fastify.ts'

// conformance.test.ts tests the common behavior of all middleware.

/** All options with which Fastify's router treats different spellings of a path as equal. */
const routerOptions = {
  caseSensitive: false,
  ignoreTrailingSlash: true,
  ignoreDuplicateSlashes: true,
  useSemicolonDelimiter: true,
}

async function listen(app: FastifyInstance): Promise<string> {
  onTestFinished(() => app.close())
  return app.listen({ port: 0, host: '127.0.0.1' })
}

describe('requirePayment', () => {
  test('passes the payment to the handler', async () => {
    const app = fastify()
    app.get('/weather', { preHandler: requirePayment(options) }, async (request) => {
      return { paid: (request as typeof request & PaidRequest).payment.paymentId }
    })
    const response = await fetch(`${await listen(app)}/weather`, paid)
    expect(await response.json()).toEqual({ paid: response.headers.get('service-payment-id') })
  })

  const start = async () => {
    const app = fastify({ routerOptions })
    let served = 0
    app.get('/weather/:city', { preHandler: requirePayment(options) }, async () => ({ served: ++served }))
    app.get('/free', async () => 'free')
    return { url: await listen(app), served: () => served }
  }

  test.each(spellings)('asks for payment for the endpoint to which Fastify routes %s', async (path) => {
    const { url, served } = await start()
    const { status, body } = await askLiterally(url, path)
    expect(status).toBe(402)
    const { pathname } = new URL(JSON.parse(body).accepts[0].resource)
    // The resource has the route's spelling of literal segments, and the decoded value of each parameter, encoded again.
    expect(pathname).toBe('/weather/lisbon')
    expect(served()).toBe(0)
  })

  test.each(unclearSpellings)('never serves %s without payment', async (path) => {
    const { url, served } = await start()
    const { status } = await askLiterally(url, path)
    expect([400, 402, 404]).toContain(status)
    expect(served()).toBe(0)
  })

  test('asks for payment on a plugin’s prefixed routes and wildcard routes', async () => {
    const app = fastify()
    await app.register(
      async (inner) => {
        inner.addHook('preHandler', requirePayment(options))
        inner.get('/files/*', async () => 'served')
        inner.get('/days/:from-:to', async () => 'served')
      },
      { prefix: '/v1' },
    )
    const url = await listen(app)
    for (const path of ['/v1/files/a%20b/c', '/v1/days/1-7']) {
      const answer = await fetch(url + path)
      expect(answer.status).toBe(402)
      const { accepts } = (await answer.json()) as { accepts: [{ resource: string }] }
      expect(new URL(accepts[0].resource).pathname).toBe(path)
    }
  })

  test('serves a request whose body Fastify has parsed', async () => {
    const app = fastify()
    app.post('/weather', { preHandler: requirePayment(options) }, async ({ body }) => ({ body }))
    const answer = await fetch(`${await listen(app)}/weather`, {
      method: 'POST',
      headers: { ...paid.headers, 'content-type': 'application/json' },
      body: JSON.stringify({ city: 'lisbon' }),
    })
    expect(await answer.json()).toEqual({ body: { city: 'lisbon' } })
  })

  test('asks for payment instead of sending a 404 if the hook is on the instance, so that only buyers learn which routes exist', async () => {
    const app = fastify()
    app.addHook('preHandler', requirePayment(options))
    app.get('/weather', async () => 'served')
    const url = await listen(app)
    expect((await fetch(`${url}/other`)).status).toBe(402)
  })
})

test('serveDiscovery handles only its own paths', async () => {
  const app = fastify()
  app.addHook('onRequest', serveDiscovery({ ...options, gatewayUrl: 'http://127.0.0.1:9' }))
  app.get('/free', async () => 'free')
  const url = await listen(app)
  expect(await (await fetch(`${url}/free`)).text()).toBe('free')
  const answer = await fetch(`${url}/openapi.json`)
  // The gateway isn't reachable, and the app has no such route.
  expect([answer.status, await answer.json()]).toEqual([
    503,
    expect.objectContaining({ code: 'dependency_unavailable' }),
  ])
})
