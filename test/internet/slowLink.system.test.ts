import { once } from 'node:events'
import { connect } from 'node:net'
import { text } from 'node:stream/consumers'
import { setTimeout as sleep } from 'node:timers/promises'
import { createClient } from '@tollkeeper/sdk/client/createClient'
import { expect, test } from 'vitest'
import { call, testGatewaySettings } from '../support/gateway.ts'
import { useSellers } from './sellers.ts'

// Uploads over slow links that are never idle, through the gateway's proxy with its production limits.

const sellers = useSellers({ upstream: { ...testGatewaySettings.upstream, maxBodyBytes: 10_485_760 } })
const mebibyte = 1_048_576

/** Pays for a URL without sending the payment. */
async function paymentFor(url: string): Promise<string> {
  let presented = ''
  const client = createClient({
    gatewayUrl: sellers.state.url,
    network: 'localhost',
    account: await sellers.gateway.buyer(1_000_000n),
    usdcAddress: sellers.gateway.served.token,
    limits: { perPayment: '1' },
    tabs: false,
    fetch: async (input, init) => {
      const authorization = new Headers(init?.headers).get('authorization')
      if (authorization === null) return fetch(input, init)
      presented = authorization
      return new Response('noted')
    },
  })
  await client.request(url, { method: 'POST', body: '' })
  return presented
}

async function post(url: string, payment: string, length: number, bytesPerSecond: number): Promise<string> {
  const { hostname, port, pathname } = new URL(url)
  const socket = connect(Number(port), hostname)
  await once(socket, 'connect')
  const answer = text(socket)
  socket.write(`POST ${pathname} HTTP/1.1\r\nHost: ${hostname}\r\nConnection: close\r\n`)
  socket.write(`Authorization: ${payment}\r\nContent-Length: ${length}\r\n\r\n`)
  const part = Buffer.alloc(bytesPerSecond / 10, 'x')
  for (let sent = 0; sent < length; sent += part.length) {
    socket.write(part.subarray(0, length - sent))
    await sleep(100)
  }
  return answer
}

test.concurrent.each([
  ['6 MiB at 300 kB/s', 6 * mebibyte, 300_000],
  ['10 MiB at 165 kB/s', 10 * mebibyte, 165_000],
])(
  'behavior: the seller serves a request of %s, charges it once, and repeats the answer if the payment is presented again',
  async (_, length, pace) => {
    const seller = await sellers.open('proxy', {
      handler: ({ body }) => Response.json({ length: body.length, answered: seller.served.length }),
    })
    const url = `${seller.url}/maps`
    const payment = await paymentFor(url)
    const slow = await post(url, payment, length, pace)
    expect(slow).toMatch(/^HTTP\/1.1 200 OK/)
    expect(slow).toContain(JSON.stringify({ length, answered: 1 }))
    const headers = { authorization: payment }
    const again = await fetch(url, { method: 'POST', body: Buffer.alloc(length, 'x'), headers })
    expect([again.status, again.headers.get('idempotent-replayed')]).toEqual([200, 'true'])
    const other = await fetch(url, { method: 'POST', body: Buffer.alloc(length, 'y'), headers })
    expect(other.status).toBe(409)
    const { body } = await call<{ payments: object[] }>(
      sellers.state.app,
      'GET',
      `/providers/${seller.providerId}/payments`,
      { key: seller.apiKey },
    )
    expect([body.payments.length, seller.served.length]).toEqual([1, 1])
  },
)
