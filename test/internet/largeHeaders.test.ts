import { once } from 'node:events'
import { connect } from 'node:net'
import { text } from 'node:stream/consumers'
import { createClient } from '@tollkeeper/sdk/client/createClient'
import { maxRequiredLength } from '@tollkeeper/sdk/middleware/fitRequired'
import { decodePaymentHeader } from '@tollkeeper/sdk/protocol/x402'
import { PaymentRequiredV2Schema } from '@x402/core/schemas'
import { expect, test } from 'vitest'
import { type SellerKind, sellerKinds, useSellers } from './sellers.ts'

// By default, nginx reads the head of an answer into 4,096 bytes, and API gateways allow 10,240 bytes of
// headers.

const sellers = useSellers()
const nginxBytes = 4_096

/** Returns the head of an answer, which a proxy must buffer. */
async function headOf(url: string, headers: Record<string, string> = {}): Promise<string> {
  const { hostname, port, pathname, search } = new URL(url)
  const socket = connect(Number(port), hostname)
  await once(socket, 'connect')
  const lines = Object.entries({ host: `${hostname}:${port}`, connection: 'close', ...headers })
  const written = lines.map(([name, value]) => `${name}: ${value}\r\n`).join('')
  socket.write(`GET ${pathname}${search} HTTP/1.1\r\n${written}\r\n`)
  const answer = await text(socket)
  return answer.slice(0, answer.indexOf('\r\n\r\n') + 4)
}

/** Returns what a client presents for a URL, without sending it. */
async function presentedFor(url: string, tabs: boolean): Promise<Record<string, string>> {
  let presented: Record<string, string> = {}
  const client = createClient({
    gatewayUrl: sellers.state.url,
    network: 'localhost',
    account: await sellers.gateway.buyer(1_000_000n),
    usdcAddress: sellers.gateway.served.token,
    limits: { perPayment: '1' },
    tabs,
    fetch: async (input, init) => {
      const headers = new Headers(init?.headers)
      if (!headers.has('authorization') && !headers.has('payment-signature')) return fetch(input, init)
      presented = Object.fromEntries(headers)
      return new Response('noted')
    },
  })
  await client.request(url)
  return presented
}

const properties = Object.fromEntries(
  Array.from({ length: 8 }, (_, index) => [
    `parameter${index}`,
    { type: 'string', description: `What parameter ${index} of this forecast means, in some words.` },
  ]),
)
const endpoints: Record<string, object> = {
  'a plain endpoint': {},
  'an endpoint with an input schema': {
    description: 'A forecast of the weather in a city, by the hour, for ten days.',
    inputSchema: { type: 'object', properties },
  },
  'an endpoint with a long description': { description: 'weather '.repeat(60) },
}
const cases = sellerKinds.flatMap((kind) =>
  Object.keys(endpoints).map((name): [string, SellerKind] => [name, kind]),
)

test.each(cases)(
  'behavior: response headers for %s of a seller with %s fit into nginx’s default buffer, both before and after payment',
  async (name, kind) => {
    const seller = await sellers.open(kind, { endpoint: endpoints[name] as object })
    for (const path of ['/weather', `/weather?q=${'x'.repeat(3_000)}`, `/${'long'.repeat(300)}`]) {
      const url = seller.url + path
      const head = await headOf(url)
      expect(head).toMatch(/^HTTP\/1.1 402 /)
      expect(head.length).toBeLessThan(nginxBytes)
      const header = /^payment-required: (.*)$/im.exec(head)?.[1] ?? ''
      expect(header.length).toBeLessThanOrEqual(maxRequiredLength)
      expect(PaymentRequiredV2Schema.parse(decodePaymentHeader(header)).accepts).toHaveLength(2)
      for (const tabs of [true, false]) {
        const paid = await headOf(url, await presentedFor(url, tabs))
        expect(paid).toMatch(/^HTTP\/1.1 200 /)
        expect(paid.length).toBeLessThan(nginxBytes)
      }
    }
  },
)
