import { createServer } from 'node:http'
import { connect } from 'node:net'
import { Readable } from 'node:stream'
import express, { type ErrorRequestHandler } from 'express'
import { expect, test } from 'vitest'
import { listen, serve, urlOf } from '../../test/serve.ts'
import { mockOptions as options, mockPaid as paid } from '../../test/signedPayment.ts'
import { type PaidRequest, requirePayment, type VerifiedPayment } from './express.ts'

// conformance.test.ts tests the common behavior of all middleware.
async function start(): Promise<string> {
  const app = express()
  app.use(requirePayment(options))
  app.get('/weather', (request, response) => {
    response.json({
      payment: response.locals.payment,
      same: (request as unknown as PaidRequest).payment.paymentId,
    })
  })
  app.get('/rejects', async () => {
    throw new Error('no weather')
  })
  app.get('/raw', (_, response) => {
    response.writeHead(502, { 'x-own': 'kept' })
    response.write('in two ')
    response.end('parts')
  })
  app.get('/piped', (_, response) => {
    response.status(500)
    response.flushHeaders()
    Readable.from(Array.from({ length: 8 }, () => 'x'.repeat(40_000))).pipe(response)
  })
  app.get('/stream', (_, response) => {
    response.write('good so far, ')
    response.statusCode = 500
    response.end('too late')
  })
  app.get('/head/:form', (request, response) => {
    const value = 'public, max-age=60'
    const { form } = request.params
    if (form === 'object') response.writeHead(200, { 'cache-control': value, 'x-own': 'kept' })
    if (form === 'flat') response.writeHead(200, ['x-own', 'kept', 'Cache-Control', value])
    if (form === 'message') response.writeHead(200, 'Fine', { 'Cache-Control': value, 'x-own': 'kept' })
    response.end()
  })
  const quiet: ErrorRequestHandler = (_error, _request, response, _next) => {
    response.status(500).send('failed')
  }
  return serve(app.use(quiet))
}

test('default: passes the payment to the handler', async () => {
  const response = await fetch(`${await start()}/weather`, paid)
  const body = (await response.json()) as { payment: VerifiedPayment; same: string }
  expect(body.payment.paymentId).toBe(response.headers.get('service-payment-id'))
  expect(body.same).toBe(body.payment.paymentId)
})

test('behavior: uses the whole URL if the app is mounted on a path', async () => {
  const inner = express().get('/weather', requirePayment(options), (_, response) => response.send('served'))
  const url = `${await serve(express().use('/v1', inner))}/v1/weather`
  expect(await (await fetch(url)).json()).toMatchObject({ accepts: [{ resource: url }, {}] })
})

test.each([
  ['/rejects', 500, 'failed'],
  ['/raw', 502, 'in two parts'],
  ['/piped', 500, 'x'.repeat(320_000)],
])(
  'behavior: voids the payment if %s fails, and sends the response without a receipt',
  async (path, status, body) => {
    const response = await fetch(`${await start()}${path}`, paid)
    expect(response.status).toBe(status)
    expect(await response.text()).toBe(body)
    expect(response.headers.get('service-receipt')).toBeNull()
    expect(response.headers.get('service-payment-status')).toBe('voided')
  },
)

test('behavior: sends the headers that a handler passes to writeHead', async () => {
  expect((await fetch(`${await start()}/raw`, paid)).headers.get('x-own')).toBe('kept')
})

test('behavior: charges for a response that fails after its head was sent', async () => {
  const response = await fetch(`${await start()}/stream`, paid)
  await response.text()
  expect(response.headers.get('service-receipt')).not.toBeNull()
})

test.each([
  ['/head/none', 'private'],
  ['/head/object', 'private, max-age=60'],
  ['/head/flat', 'private, max-age=60'],
  ['/head/message', 'private, max-age=60'],
])('behavior: no shared cache may keep the response to a request for %s', async (path, cacheControl) => {
  const { status, headers } = await fetch(`${await start()}${path}`, paid)
  expect([status, headers.get('cache-control')]).toEqual([200, cacheControl])
  expect(headers.get('x-own')).toBe(path === '/head/none' ? null : 'kept')
})

/** Sends a raw request line and Host header, which no proper client would send. */
async function askRaw(
  target: string,
  host: string,
): Promise<{ status: number; resource: string | undefined }> {
  const socket = connect(Number(new URL(await start()).port), '127.0.0.1')
  socket.end(`GET ${target} HTTP/1.1\r\nHost: ${host}\r\nConnection: close\r\n\r\n`)
  let text = ''
  for await (const chunk of socket) text += String(chunk)
  const [, body = ''] = text.split('\r\n\r\n')
  const { accepts } = JSON.parse(/\{.*\}/s.exec(body)?.[0] ?? '{}') as { accepts?: { resource: string }[] }
  return { status: Number(text.split(' ', 2)[1]), resource: accepts?.[0]?.resource }
}

test.each([
  ['/weather', 'x/cheap?', 'http://localhost/weather'],
  ['/weather', 'x/cheap#', 'http://localhost/weather'],
  ['/weather', 'user@x', 'http://localhost/weather'],
  ['/weather?a=1', 'shop.example:8080', 'http://shop.example:8080/weather?a=1'],
  ['/weather', '[::1]:80', 'http://[::1]/weather'],
  ['//other/cheap', 'shop.example', 'http://shop.example//other/cheap'],
])('behavior: a request for %s with the Host %s pays for the resource %s', async (target, host, resource) => {
  expect(await askRaw(target, host)).toEqual({ status: 402, resource })
})

test.each(['/weather/../cheap', '/weather/%2e%2E/cheap', '/weather\\..\\cheap', 'http://x/cheap'])(
  'error: rejects %s, because Express and a URL parser read different paths from it',
  async (target) => {
    expect(await askRaw(target, 'shop.example')).toEqual({ status: 400, resource: undefined })
  },
)

test('behavior: works with plain node:http, without Express', async () => {
  const gate = requirePayment(options)
  const server = createServer((request, response) => {
    gate(request, response, () => {
      response.statusCode = 500
      response.end()
    })
  })
  await listen(server)
  const response = await fetch(urlOf(server), paid)
  expect(response.status).toBe(500)
  expect(response.headers.get('service-payment-status')).toBe('voided')
})
