import { once } from 'node:events'
import { connect } from 'node:net'
import { Writable } from 'node:stream'
import { createLogger } from '@tollkeeper/runtime/log'
import { serve } from '@tollkeeper/runtime/serve'
import { createPublicClient, http } from 'viem'
import { expect, test } from 'vitest'
import { call, openShop, signedBody } from '../../test/support/gateway.ts'
import { useGateway } from '../../test/support/useGateway.ts'

const anyPort = { host: '127.0.0.1', port: 0, portVariable: 'API_PORT' }

const gateway = useGateway()
test('default: serves requests through a real server, and refuses bodies over the limit', async () => {
  const server = await serve(gateway.app, anyPort)
  const url = `http://127.0.0.1:${server.port}`
  const post = (body: string | ReadableStream, extra = {}) =>
    fetch(`${url}/verify`, {
      method: 'POST',
      headers: { 'content-type': 'application/json' },
      body,
      ...extra,
    })
  expect((await fetch(`${url}/healthz`)).status).toBe(200)
  expect((await post('{}')).status).toBe(400)
  expect((await post('x'.repeat(16_385))).status).toBe(413)
  const chunk = new TextEncoder().encode('x'.repeat(10_000))
  const chunked = new ReadableStream({
    start(controller) {
      for (let i = 0; i < 3; i++) controller.enqueue(chunk)
      controller.close()
    },
  })
  expect((await post(chunked, { duplex: 'half' })).status).toBe(413)
  const long = await fetch(`${url}/healthz`, { headers: { 'x-long': 'y'.repeat(20_000) } })
  expect(long.status).toBe(431)
  await server.close()
})

test('error: if the port is in use, the error names the variable that sets it', async () => {
  const server = await serve(gateway.app, anyPort)
  await expect(serve(gateway.app, { ...anyPort, port: server.port })).rejects.toThrow(
    `Port ${server.port} is taken: set API_PORT`,
  )
  await server.close()
})

test('behavior: disconnects a client that never finishes its headers', async () => {
  const server = await serve(gateway.app, { ...anyPort, headersTimeoutMs: 500 })
  const socket = connect(server.port, '127.0.0.1')
  socket.write('POST /verify HTTP/1.1\r\nHost: a\r\n')
  const started = performance.now()
  socket.resume()
  await once(socket, 'close')
  // Node's default limit is a minute.
  expect(performance.now() - started).toBeLessThan(30_000)
  await server.close()
})

test('behavior: closes the connection on a body over the limit, without reading it to its end', async () => {
  const server = await serve(gateway.app, anyPort)
  const socket = connect(server.port, '127.0.0.1')
  socket.on('error', () => {})
  const closed = new Promise((resolve) => socket.once('close', resolve))
  const length = 1_000_000_000
  const type = 'content-type: application/json'
  socket.write(`POST /verify HTTP/1.1\r\nHost: a\r\n${type}\r\ncontent-length: ${length}\r\n\r\n`)
  expect(String(await once(socket, 'data'))).toMatch(/^HTTP\/1.1 413 /)
  const send = (error?: Error | null) => {
    if (!error && !socket.destroyed)
      socket.write(Buffer.alloc(65_536, 120), (failed) => setImmediate(send, failed))
  }
  send()
  await closed
  expect(socket.bytesWritten).toBeLessThan(length / 10)
  await server.close()
})

test('behavior: writes no secret, signature or macaroon to the log at any level', async () => {
  let text = ''
  const destination = new Writable({
    write(chunk, _, done) {
      text += String(chunk)
      done()
    },
  })
  const log = createLogger('test', 'trace', destination)
  log.info(
    { macaroon: 'in-the-open', request: { payloads: ['in-the-open'], signature: 'in-the-open' } },
    'on purpose',
  )
  const app = gateway.withOptions({ log })
  const shop = await openShop(app)
  const body = await signedBody(gateway, shop, await gateway.buyer(1_000_000n))
  // Errors of dependencies contain the failed requests. So this test sends requests to a node that is down, and to a database that rejects a row.
  const transport = http('http://rpc-user:rpc-password@127.0.0.1:1/rpc-key', { retryCount: 0 })
  const away = gateway.withOptions({
    log,
    networks: [{ ...gateway.served, client: createPublicClient({ transport }) }],
  })
  expect((await call(away, 'POST', '/verify', { json: body })).status).toBe(503)
  await gateway.database`alter table presentation add constraint broken check (request_hash = '') not valid`
  expect((await call(app, 'POST', '/verify', { json: body })).status).toBe(500)
  await gateway.database`alter table presentation drop constraint broken`
  expect(text).toContain('HttpRequestError')
  expect(text).toContain('broken')
  await call(app, 'POST', '/verify', { json: body, key: shop.key })
  await call(app, 'POST', '/verify', { json: body, key: shop.key })
  await call(app, 'POST', '/verify', { json: { ...body, payloads: [body.payloads[0], body.payloads[0]] } })
  await call(app, 'POST', '/verify', { json: body, key: `${shop.key.slice(0, -1)}0` })
  const signatures = body.payloads.map((payload) => payload.split(',')[6] as string)
  for (const secret of [
    'in-the-open',
    'rpc-user',
    'rpc-password',
    'rpc-key',
    'eyJ',
    shop.key,
    shop.key.slice(-40),
    body.macaroon,
    ...signatures,
  ]) {
    expect(text).not.toContain(secret)
  }
  expect(text).toContain('on purpose')
  expect(text.split('\n').length).toBeGreaterThan(3)
})
