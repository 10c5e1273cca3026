import { createServer, type RequestListener, type Server } from 'node:http'
import type { AddressInfo } from 'node:net'
import { afterEach, expect, test } from 'vitest'
import { createAddressGuard, type Resolve } from './addressGuard.ts'
import { send } from './send.ts'

const servers: Server[] = []

afterEach(() => {
  for (const server of servers.splice(0)) {
    server.closeAllConnections()
    server.close()
  }
})

async function listen(listener: RequestListener): Promise<number> {
  const server = createServer(listener)
  servers.push(server)
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
  return (server.address() as AddressInfo).port
}

const local = createAddressGuard({ allowPrivate: true })

function post(url: string, options: { guard?: typeof local; timeoutMs?: number } = {}) {
  const { guard = local, timeoutMs = 5_000 } = options
  return send({
    url,
    headers: { 'content-type': 'application/json', 'x-test': 'yes' },
    body: '{"a":"ä"}',
    guard,
    timeoutMs,
  })
}

test('default: sends the body, and returns the response', async () => {
  let got = {}
  const port = await listen(async (request, response) => {
    const chunks: Buffer[] = []
    for await (const chunk of request) chunks.push(chunk)
    got = {
      method: request.method,
      url: request.url,
      test: request.headers['x-test'],
      body: Buffer.concat(chunks).toString(),
    }
    response.end('thanks')
  })
  expect(await post(`http://127.0.0.1:${port}/hook?a=b`)).toEqual({
    status: 'answered',
    isCut: false,
    httpStatus: 200,
    retryAfterMs: 0,
    headers: expect.objectContaining({ 'content-length': '6' }),
    body: 'thanks',
  })
  expect(got).toEqual({ method: 'POST', url: '/hook?a=b', test: 'yes', body: '{"a":"ä"}' })
})

test('behavior: doesn’t follow redirects', async () => {
  let followed = false
  const inside = await listen((_, response) => {
    followed = true
    response.end()
  })
  const port = await listen((_, response) => {
    response.writeHead(307, { location: `http://127.0.0.1:${inside}/` }).end()
  })
  expect(await post(`http://127.0.0.1:${port}/`)).toMatchObject({ status: 'answered', httpStatus: 307 })
  expect(followed).toBe(false)
})

test('behavior: reads only a limited part of an endless body', async () => {
  const port = await listen((_, response) => {
    const write = () => {
      while (!response.destroyed && response.write('x'.repeat(65_536)));
    }
    response.on('drain', write)
    write()
  })
  const result = await post(`http://127.0.0.1:${port}/`)
  expect(result).toMatchObject({ status: 'answered', httpStatus: 200 })
  expect(result.status === 'answered' && result.body.length).toBe(16_384)
})

test('behavior: returns the status if the body never ends', async () => {
  const port = await listen((_, response) => {
    response.writeHead(200)
    response.write('half')
  })
  expect(await post(`http://127.0.0.1:${port}/`, { timeoutMs: 5_000 })).toMatchObject({
    status: 'answered',
    httpStatus: 200,
    body: 'half',
  })
})

test('behavior: returns the delay of Retry-After', async () => {
  const port = await listen((_, response) => {
    response.writeHead(503, { 'retry-after': '120' }).end()
  })
  expect(await post(`http://127.0.0.1:${port}/`)).toMatchObject({ httpStatus: 503, retryAfterMs: 120_000 })
})

test('error: times out if no response arrives', async () => {
  const port = await listen(() => {})
  expect(await post(`http://127.0.0.1:${port}/`, { timeoutMs: 200 })).toMatchObject({
    status: 'unanswered',
    failure: 'timeout',
  })
})

test('error: reports a network error if nothing listens', async () => {
  const port = await listen(() => {})
  await new Promise((resolve) => servers.pop()?.close(resolve))
  expect(await post(`http://127.0.0.1:${port}/`)).toMatchObject({
    status: 'unanswered',
    failure: 'connection_failed',
  })
})

test('error: rejects a literal private address', async () => {
  let reached = false
  const port = await listen((_, response) => {
    reached = true
    response.end()
  })
  const guard = createAddressGuard({ allowPrivate: false })
  for (const host of ['127.0.0.1', '2130706433', '[::ffff:127.0.0.1]']) {
    expect(await post(`https://${host}:${port}/`, { guard })).toMatchObject({ failure: 'address_refused' })
  }
  expect(reached).toBe(false)
})

test('error: rejects a name that resolves to loopback when the connection is made, even if an earlier look-up was public (DNS rebinding)', async () => {
  let reached = false
  const port = await listen((_, response) => {
    reached = true
    response.end()
  })
  const answers = ['93.184.215.14', '127.0.0.1']
  const resolve: Resolve = async () => [{ address: answers.shift() ?? '127.0.0.1', family: 4 }]
  const guard = createAddressGuard({ allowPrivate: false, resolve })
  const url = `https://rebind.example:${port}/`
  await guard.check(new URL(url))
  expect(await post(url, { guard })).toMatchObject({ status: 'unanswered', failure: 'address_refused' })
  expect(reached).toBe(false)
})

test('behavior: connects to exactly the address that was checked', async () => {
  let host = ''
  const port = await listen((request, response) => {
    host = request.headers.host ?? ''
    response.end()
  })
  let lookups = 0
  const resolve: Resolve = async () => {
    lookups++
    return [{ address: '127.0.0.1', family: 4 }]
  }
  const guard = createAddressGuard({ allowPrivate: true, resolve })
  expect(await post(`http://pinned.example:${port}/`, { guard })).toMatchObject({ httpStatus: 200 })
  expect(host).toBe(`pinned.example:${port}`)
  expect(lookups).toBe(1)
})
