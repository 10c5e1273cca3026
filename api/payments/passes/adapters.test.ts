import { once } from 'node:events'
import { createServer, type IncomingMessage } from 'node:http'
import type { AddressInfo } from 'node:net'
import { serve } from '@hono/node-server'
import { loopback, reservePort } from '@tollkeeper/runtime/port'
import { createClient } from '@tollkeeper/sdk/client/createClient'
import { wrapFetch } from '@tollkeeper/sdk/client/wrapFetch'
import { createPassGate } from '@tollkeeper/sdk/middleware/passGate'
import { afterAll, beforeAll, expect, test, vi } from 'vitest'
import { call, startGateway, type TestGateway } from '../../../test/support/gateway.ts'
import { openShop, type Shop } from '../../../test/support/shop.ts'
import { acceptWebSocket, eventOf, openWebSocket } from '../../../test/support/webSocket.ts'

// These tests use passes over real connections, with each adapter of the middleware and with WebSockets.

let gateway: TestGateway
let gatewayUrl: string
const closers: (() => unknown)[] = []

beforeAll(async () => {
  const port = await reservePort()
  gatewayUrl = `http://${loopback}:${port}`
  gateway = await startGateway({ issuer: gatewayUrl })
  const server = serve({ fetch: gateway.app.fetch, port, hostname: loopback })
  await once(server, 'listening')
  closers.push(() => server.close())
})
afterAll(async () => {
  for (const close of closers.reverse()) await close()
  await gateway.close()
})

async function openSeller(options: Parameters<typeof openShop>[1]): Promise<Shop> {
  const shop = await openShop({ api: { url: gatewayUrl }, chain: { network: 'localhost' } } as never, options)
  closers.push(() => shop.close())
  return shop
}

const buyerOptions = async () => ({
  gatewayUrl,
  network: 'localhost' as const,
  account: await gateway.buyer(1_000_000n),
  usdcAddress: gateway.served.token,
  limits: { perPayment: '0.1' },
})

test.each(['hono', 'express', 'fastify', 'fetch'] as const)(
  '%s sells a pass and serves requests until it is used up',
  async (framework) => {
    const shop = await openSeller({
      framework,
      gate: { pricing: { usdcPerUnit: '0.05', pass: 3 } },
      usdcPerUnit: '0.05',
    })
    const client = createClient(await buyerOptions())
    const first = await client.request<{ pass: { left: number } }>(shop.url)
    expect(first.data.pass.left).toBe(2)
    const left: (string | null)[] = []
    for (let i = 0; i < 2; i++) {
      const { headers, receipt } = await client.request(shop.url)
      expect([receipt, headers.get('cache-control')]).toEqual([undefined, 'private'])
      left.push(headers.get('service-pass-left'))
    }
    expect(left).toEqual(['1', '0'])
    expect(shop.served()).toBe(3)
    const { body } = await call<{ pass: object }>(gateway.app, 'GET', `/payments/${first.paymentId}`)
    expect(body.pass).toMatchObject({ requests: 3, used: 3, pass_state: 'used_up' })
  },
)

test('wrapFetch sends a pass together with its caller’s login', async () => {
  const shop = await openSeller({
    gate: { pricing: { usdcPerUnit: '0.05', pass: '1h' } },
    usdcPerUnit: '0.05',
  })
  const payments: unknown[] = []
  const payingFetch = wrapFetch(fetch, {
    ...(await buyerOptions()),
    limits: { onPayment: (one) => void payments.push(one) },
  })
  const login = { headers: { authorization: 'Bearer mine' } }
  for (let i = 0; i < 3; i++) expect((await payingFetch(shop.url, login)).status).toBe(200)
  expect(payments).toHaveLength(1)
})

test('a WebSocket opens with a pass, and closes within a minute after the payment is voided', async () => {
  const shop = await openSeller({
    gate: { pricing: { usdcPerUnit: '0.05', pass: '1h' } },
    usdcPerUnit: '0.05',
  })
  const gate = createPassGate({
    gatewayUrl,
    providerId: shop.providerId,
    apiKey: shop.apiKey,
    endpointIds: shop.endpointIds,
    publicUrl: shop.url,
  })
  const server = createServer()
  server.on('upgrade', async (request: IncomingMessage, socket) => {
    const checked = await gate.check(request.headers['service-pass']?.toString())
    if (!checked.isOpen) return socket.end(`HTTP/1.1 ${checked.status} ${checked.code}\r\n\r\n`)
    const client = acceptWebSocket(request, socket)
    socket.on(
      'close',
      gate.watch(checked.pass, () => client.close(4_402, 'the pass has ended')),
    )
    client.send(`paid by ${checked.pass.payer}`)
  })
  server.listen(0, loopback)
  await once(server, 'listening')
  closers.push(() => server.close())
  const url = `ws://${loopback}:${(server.address() as AddressInfo).port}/data`

  const options = await buyerOptions()
  // Records the header in which the client sends its pass. Any program that has the pass can send this header: below, the test opens WebSockets
  // with it.
  let presented = ''
  const client = createClient({
    ...options,
    fetch: async (input, init) => {
      presented = new Headers(init?.headers).get('service-pass') ?? presented
      return fetch(input, init)
    },
  })
  const { paymentId } = await client.request(shop.url)
  await client.request(shop.url)

  for (const headers of [{}, { 'service-pass': presented.slice(0, -10) }] as Record<string, string>[])
    expect(await eventOf(openWebSocket(url, headers), 'error')).toBeDefined()
  const timers = vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout', 'Date'], shouldAdvanceTime: true })
  const socket = openWebSocket(url, { 'service-pass': presented })
  const { data } = await eventOf(socket, 'message')
  expect(data).toBe(`paid by ${options.account.address.toLowerCase()}`)

  await call(gateway.app, 'POST', `/payments/${paymentId}/void`, { key: shop.apiKey })
  const closed = eventOf(socket, 'close')
  await timers.advanceTimersByTimeAsync(60_000)
  expect(await closed).toMatchObject({ code: 4_402, reason: 'the pass has ended' })
  vi.useRealTimers()
})
