import { createServer } from 'node:http'
import { Readable } from 'node:stream'
import express, { type ErrorRequestHandler } from 'express'
import { expect, test } from 'vitest'
import { listen, serve, urlOf } from '../../test/serve.ts'
import { decodeReceipt } from '../protocol/receipt.ts'
import { type PaidRequest, requirePayment } from './express.ts'

const options = {
  gatewayUrl: 'https://gateway.example',
  providerId: `prov_${'1'.repeat(32)}`,
  pricing: { usdcPerUnit: '0.05' },
  mockPayments: true,
}
const paid = { headers: { authorization: 'x402 mock:mock' } }

async function start(gate = options): Promise<string> {
  const app = express()
  app.use(requirePayment(gate))
  app.get('/weather', (request, response) => {
    response.json({
      payment: response.locals.payment,
      same: (request as unknown as PaidRequest).payment.paymentId,
    })
  })
  app.get('/throws', () => {
    throw new Error('no weather')
  })
  app.get('/rejects', async () => {
    throw new Error('no weather')
  })
  app.get('/unavailable', (_, response) => {
    response.status(503).json({ later: true })
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
  app.get('/wrong', (_, response) => {
    response.status(404).end('no such city')
  })
  const quiet: ErrorRequestHandler = (_error, _request, response, _next) => {
    response.status(500).send('failed')
  }
  return serve(app.use(quiet))
}

test('default', async () => {
  const response = await fetch(`${await start()}/weather`, paid)
  const receipt = response.headers.get('service-receipt') ?? ''
  const { paymentId } = decodeReceipt(receipt) ?? {}
  expect(response.status).toBe(200)
  expect(await response.json()).toEqual({ payment: { verified: true, receipt, paymentId }, same: paymentId })
  expect(response.headers.get('service-payment-status')).toBe('verified')
})

test('behavior: 402 with a challenge for the URL that was asked for', async () => {
  const url = `${await start()}/weather?city=1`
  const response = await fetch(url)
  expect(response.status).toBe(402)
  expect(response.headers.get('content-type')).toBe('application/json')
  expect(await response.json()).toMatchObject({ accepts: [{ resource: url }, {}] })
})

test('behavior: the URL is whole where the app is mounted on a path', async () => {
  const inner = express().get('/weather', requirePayment(options), (_, response) => response.send('served'))
  const url = `${await serve(express().use('/v1', inner))}/v1/weather`
  expect(await (await fetch(url)).json()).toMatchObject({ accepts: [{ resource: url }, {}] })
})

test.each([
  ['/throws', 500, 'failed'],
  ['/rejects', 500, 'failed'],
  ['/unavailable', 503, '{"later":true}'],
  ['/raw', 502, 'in two parts'],
  ['/piped', 500, 'x'.repeat(320_000)],
])('behavior: %s voids the payment and carries no receipt', async (path, status, body) => {
  const response = await fetch(`${await start()}${path}`, paid)
  expect(response.status).toBe(status)
  expect(await response.text()).toBe(body)
  expect(response.headers.get('service-receipt')).toBeNull()
  expect(response.headers.get('service-payment-status')).toBe('voided')
})

test('behavior: headers given to writeHead arrive', async () => {
  expect((await fetch(`${await start()}/raw`, paid)).headers.get('x-own')).toBe('kept')
})

test.each(['/stream', '/wrong'])('behavior: %s is paid for', async (path) => {
  const response = await fetch(`${await start()}${path}`, paid)
  await response.text()
  expect(response.headers.get('service-receipt')).not.toBeNull()
})

test('behavior: plain node:http, without Express', async () => {
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

test('error: the gateway is gone', async () => {
  const response = await fetch(
    `${await start({ ...options, mockPayments: false, gatewayUrl: 'http://127.0.0.1:1' })}/weather`,
  )
  expect(response.status).toBe(503)
  expect(response.headers.get('content-type')).toBe('application/problem+json')
})
