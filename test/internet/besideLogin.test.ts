import { createServer, type Server } from 'node:http'
import { createAdaptorServer } from '@hono/node-server'
import { createClient } from '@tollkeeper/sdk/client/createClient'
import { ClientError } from '@tollkeeper/sdk/client/errors'
import { requirePayment as requireExpressPayment } from '@tollkeeper/sdk/middleware/express'
import { type PaidRequest, requirePayment as requireFastifyPayment } from '@tollkeeper/sdk/middleware/fastify'
import { requirePayment as requireFetchPayment } from '@tollkeeper/sdk/middleware/fetch'
import { type PaymentVariables, requirePayment } from '@tollkeeper/sdk/middleware/hono'
import express, { type RequestHandler } from 'express'
import fastify, { type preHandlerAsyncHookHandler } from 'fastify'
import { Hono } from 'hono'
import { bearerAuth } from 'hono/bearer-auth'
import { jwt } from 'hono/jwt'
import { jwtVerify, SignJWT } from 'jose'
import { expect, test } from 'vitest'
import { listenerOf, readRequest, type SellerOptions, useSellers } from './sellers.ts'

// Routes that need a login and a payment, with common login checks, before and after the payment.

const sellers = useSellers()

const secret = 'a secret of 32 characters or more'
const key = new TextEncoder().encode(secret)
const token = await new SignJWT({ sub: 'alice' }).setProtectedHeader({ alg: 'HS256' }).sign(key)

const isValid = async (authorization: string | null | undefined) => {
  const [, presented = ''] = /^Bearer (.+)$/.exec(authorization ?? '') ?? []
  return jwtVerify(presented, key).then(
    () => true,
    () => false,
  )
}

type ServerOf = NonNullable<SellerOptions['server']>

const honoServer =
  (login: 'bearerAuth' | 'jwt', isFirst: boolean): ServerOf =>
  (gate, handle) => {
    const app = new Hono<{ Variables: PaymentVariables }>()
    const check = login === 'jwt' ? jwt({ secret, alg: 'HS256' }) : bearerAuth({ token })
    const paid = requirePayment(gate)
    app.use(isFirst ? check : paid)
    app.use(isFirst ? paid : check)
    app.all('/*', async (c) => handle(await readRequest(c.req.raw)))
    return createAdaptorServer({ fetch: app.fetch }) as Server
  }

const expressServer =
  (isFirst: boolean): ServerOf =>
  (gate, handle) => {
    const app = express()
    const check: RequestHandler = async (request, response, next) => {
      if (await isValid(request.headers.authorization)) next()
      else response.status(401).json({ error: 'log in' })
    }
    const paid = requireExpressPayment(gate)
    if (isFirst) app.use(check, paid)
    else app.use(paid, check)
    app.use((request, response) => listenerOf(handle)(request, response))
    return createServer(app)
  }

const fastifyServer =
  (isFirst: boolean): ServerOf =>
  (gate, handle) => {
    let server: Server | undefined
    const app = fastify({
      serverFactory: (listener) => {
        server = createServer(listener)
        return server
      },
    })
    const check: preHandlerAsyncHookHandler = async (request, reply) => {
      if (!(await isValid(request.headers.authorization))) await reply.code(401).send({ error: 'log in' })
    }
    const paid = requireFastifyPayment(gate)
    app.all('/*', { preHandler: isFirst ? [check, paid] : [paid, check] }, async (request) => {
      const { authorization = '' } = request.headers
      const { payment } = request as typeof request & PaidRequest
      expect(payment.paymentId).toBeTruthy()
      const served = { method: request.method, url: request.url, headers: new Headers({ authorization }) }
      return (await handle({ ...served, body: Buffer.alloc(0) })).json()
    })
    const ready = app.ready()
    const open = server as unknown as Server
    const { listen } = open
    // Listens only once the plugin is loaded, because otherwise the first request could arrive before the plugin has registered its routes.
    open.listen = ((...args: Parameters<typeof listen>) => {
      void ready.then(() => listen.apply(open, args))
      return open
    }) as typeof listen
    return open
  }

const fetchServer =
  (isFirst: boolean): ServerOf =>
  (gate, handle) => {
    const guard =
      (next: (request: Request) => Promise<Response> | Response) =>
      async (request: Request): Promise<Response> =>
        (await isValid(request.headers.get('authorization')))
          ? next(request)
          : Response.json({ error: 'log in' }, { status: 401 })
    const paid = requireFetchPayment(gate)
    const answer = async (request: Request) => handle(await readRequest(request))
    const guarded = isFirst ? guard((request) => paid(answer)(request)) : paid(guard(answer))
    return createAdaptorServer({ fetch: (request) => guarded(request) }) as Server
  }

const servers: [string, (isFirst: boolean) => ServerOf][] = [
  ['Hono’s bearerAuth', (isFirst) => honoServer('bearerAuth', isFirst)],
  ['Hono’s jwt', (isFirst) => honoServer('jwt', isFirst)],
  ['Express with a JWT', expressServer],
  ['Fastify with a JWT', fastifyServer],
  ['a fetch handler with a JWT', fetchServer],
]
const cases = servers.flatMap(([name, serverOf]) =>
  [true, false].map((isFirst): [string, string, ServerOf, boolean] => [
    name,
    isFirst ? 'before' : 'after',
    serverOf(isFirst),
    isFirst,
  ]),
)

const paymentsTo = async (providerId: string) => {
  const [row] = await sellers.gateway.database<{ count: string }[]>`
    select count(*) from payment where provider_id = ${providerId}`
  return Number(row?.count)
}

test.each(cases)(
  'a login check (%s) %s the payment accepts a buyer who logs in and pays',
  async (_, __, server) => {
    const seller = await sellers.open('hono', { server, usdcPerUnit: '0.05' })
    const client = createClient(await sellers.payment())
    const headers = { authorization: `Bearer ${token}` }
    const { receipt, payment } = await client.request(`${seller.url}/weather`, { headers })
    expect(receipt).toBeTruthy()
    expect(payment?.payloads).toHaveLength(1)
    const response = await client.fetch(`${seller.url}/weather`, { headers })
    expect([response.status, response.headers.has('service-receipt')]).toEqual([200, true])
    expect(seller.served.map((request) => request.headers.get('authorization'))).toEqual(
      Array(2).fill(headers.authorization),
    )
    expect(await paymentsTo(seller.providerId)).toBe(2)
  },
)

test.each(cases.filter(([, , , isFirst]) => isFirst))(
  'a login check (%s) %s the payment rejects a wrong login before anything is signed or charged',
  async (_, __, server) => {
    const seller = await sellers.open('hono', { server, usdcPerUnit: '0.05' })
    const client = createClient(await sellers.payment())
    for (const authorization of ['Bearer wrong', '']) {
      const error = await client
        .request(`${seller.url}/weather`, { headers: { ...(authorization && { authorization }) } })
        .catch((reason: unknown) => reason)
      if (!(error instanceof ClientError)) throw error
      expect([400, 401]).toContain(error.status)
      expect(error.payment).toBeUndefined()
    }
    expect(await paymentsTo(seller.providerId)).toBe(0)
  },
)

// If a login check returns a 401, the request is charged, like any other response below 500. Hono's login checks throw instead, and a payment is
// voided if the handler throws.
test.each(cases.filter(([, , , isFirst]) => !isFirst))(
  'a login check (%s) %s the payment rejects a wrong login only after the request was paid',
  async (name, __, server) => {
    const seller = await sellers.open('hono', { server, usdcPerUnit: '0.05' })
    const client = createClient(await sellers.payment())
    const headers = { authorization: 'Bearer wrong' }
    const error = await client.request(`${seller.url}/weather`, { headers }).catch((reason) => reason)
    const outcome = name.startsWith('Hono') ? 'not_charged' : 'served'
    expect(error).toMatchObject({ status: 401, outcome })
    expect(await paymentsTo(seller.providerId)).toBe(1)
  },
)

test('mock mode pays on a route that also requires a login', async () => {
  const gate = { gatewayUrl: 'https://gateway.example', providerId: 'prov_1', mockPayments: true } as const
  const app = new Hono<{ Variables: PaymentVariables }>()
  app.get(
    '/weather',
    bearerAuth({ token }),
    requirePayment({ ...gate, pricing: { usdcPerUnit: '0.05' } }),
    (c) => c.json({ login: c.req.header('authorization') }),
  )
  const client = createClient({
    gatewayUrl: gate.gatewayUrl,
    network: 'base',
    walletPrivateKey: `0x${'1'.repeat(64)}`,
    mockPayments: true,
    fetch: async (input, init) => app.request(String(input), init),
  })
  const headers = { authorization: `Bearer ${token}` }
  const { data, receipt } = await client.request('https://api.example/weather', { headers })
  expect([data, receipt?.split('.').length]).toEqual([{ login: headers.authorization }, 3])
})
