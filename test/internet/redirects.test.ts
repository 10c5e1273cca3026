import { createServer, type IncomingHttpHeaders } from 'node:http'
import { createClient } from '@tollkeeper/sdk/client/createClient'
import { wrapFetch } from '@tollkeeper/sdk/client/wrapFetch'
import { repeatPaid } from '@tollkeeper/sdk/x402/repeatPaid'
import { keepTabs } from '@tollkeeper/sdk/x402/tabEvmScheme'
import { x402Client } from '@x402/core/client'
import { ExactEvmScheme } from '@x402/evm/exact/client'
import { wrapFetchWithPayment } from '@x402/fetch'
import { expect, test } from 'vitest'
import { listen, type SellerKind, sellerKinds, useSellers } from './sellers.ts'

// A seller that answers a paid request with a redirect. fetch itself drops only the Authorization header for
// another origin, so the client must drop its other payment headers.

const sellers = useSellers()
const { payment } = sellers

/** Opens a seller that redirects to another origin, and records what was sent there. */
async function openRedirecting(kind: SellerKind, status: number) {
  const seen: IncomingHttpHeaders[] = []
  const elsewhere = await listen(
    createServer((request, response) => {
      seen.push(request.headers)
      response.setHeader('service-payment-id', 'pay_of_another').end('elsewhere')
    }),
  )
  const headers = { location: `${elsewhere}/there` }
  const seller = await sellers.open(kind, { handler: () => new Response(null, { status, headers }) })
  return { seller, elsewhere, seen }
}

const isPayment = (headers: IncomingHttpHeaders) =>
  ['authorization', 'payment-signature', 'x-payment', 'cookie'].some((name) => headers[name] !== undefined)

const statuses = [301, 302, 303, 307, 308]
const cases = sellerKinds.flatMap((kind) => statuses.map((status): [SellerKind, number] => [kind, status]))

test.each(cases)(
  'behavior: the client sends no payment to another origin if a seller with %s redirects with status %d',
  async (kind, status) => {
    const { seller, elsewhere, seen } = await openRedirecting(kind, status)
    for (const tabs of [true, false]) {
      const payingFetch = wrapFetch(fetch, await payment(tabs))
      const init = { method: 'POST', body: 'asked', headers: { cookie: 'a=1' } }
      const response = await payingFetch(`${seller.url}/weather`, init)
      expect([response.status, response.url, response.redirected]).toEqual([200, `${elsewhere}/there`, true])
      expect(await response.text()).toBe('elsewhere')
      // The seller was paid, so the client returns the seller's receipt, and ignores the receipt headers of the other origin.
      expect(response.headers.get('service-payment-id')).toMatch(/^pay_[0-9a-f]{32}$/)
      expect(response.headers.get('service-receipt')).toBeTruthy()
    }
    expect([seen.length, seen.some(isPayment), seller.served.length]).toEqual([2, false, 2])
  },
)

test('behavior: createClient returns the receipt of the seller that redirects', async () => {
  const { seller, seen } = await openRedirecting('hono', 307)
  const { data, receipt, paymentId } = await createClient(await payment(true)).request(
    `${seller.url}/weather`,
  )
  expect(new TextDecoder().decode(data as Uint8Array)).toBe('elsewhere')
  expect([receipt !== undefined, paymentId?.startsWith('pay_'), seen.some(isPayment)]).toEqual([
    true,
    true,
    false,
  ])
})

test('behavior: repeatPaid sends payments and tabs of x402’s client only to their origin', async () => {
  const { seller, seen } = await openRedirecting('express', 307)
  const { account, gatewayUrl, usdcAddress } = await payment(true)
  const client = new x402Client().register('eip155:*', new ExactEvmScheme(account))
  keepTabs(client, account, { gatewayUrl, usdcAddress })
  const response = await wrapFetchWithPayment(repeatPaid(fetch), client)(`${seller.url}/weather`)
  expect([response.status, seen.length, seen.some(isPayment)]).toEqual([200, 1, false])
})

test('behavior: the client presents the payment again after redirects within the origin until a seller reports a charge', async () => {
  const seller = await sellers.open('hono', {
    handler: ({ url, headers }) =>
      url === '/paid'
        ? Response.redirect(`http://${headers.get('host')}/paid/`, 308)
        : Response.json({ url }),
  })
  const isPaid: boolean[] = []
  const inner: typeof fetch = async (input, init) => {
    isPaid.push(new Headers(init?.headers).has('authorization'))
    return fetch(input, init)
  }
  const payingFetch = wrapFetch(inner, await payment(false))
  const response = await payingFetch(`${seller.url}/paid`)
  // The second URL has a price as well, but the payment was not sent to it.
  expect([response.status, isPaid]).toEqual([402, [false, true, false]])
})

test('behavior: the client keeps the caller’s own credentials after a redirect within the origin, and drops them at another origin', async () => {
  const seen: IncomingHttpHeaders[] = []
  const elsewhere = await listen(
    createServer((request, response) => {
      seen.push(request.headers)
      response.end('elsewhere')
    }),
  )
  const seller = await sellers.open('hono', {
    handler: ({ headers }) => Response.redirect(`http://${headers.get('host')}/next`, 307),
  })
  const within: IncomingHttpHeaders[] = []
  const inner: typeof fetch = async (input, init) => {
    if (!String(input).endsWith('/next')) return fetch(input, init)
    within.push(Object.fromEntries(new Headers(init?.headers)))
    return new Response(null, { status: 307, headers: { location: `${elsewhere}/there` } })
  }
  const headers = { authorization: 'Bearer mine', cookie: 'a=1' }
  const response = await wrapFetch(inner, await payment(true))(`${seller.url}/weather`, { headers })
  expect(await response.text()).toBe('elsewhere')
  expect(within).toMatchObject([headers])
  expect(within[0]?.['payment-signature']).toBeUndefined()
  expect([seen.length, seen.some(isPayment)]).toEqual([1, false])
})

test.each([
  ['ftp://127.0.0.1/', 'not an http(s) URL'],
  ['/loop', 'redirects too often'],
])('error: the client does not follow the redirect of a paid request to %s', async (location, reason) => {
  const seller = await sellers.open('fetch', {
    handler: () => new Response(null, { status: 302, headers: { location } }),
  })
  const loop: typeof fetch = async (input, init) => {
    const isPaid = new Headers(init?.headers).has('authorization')
    if (!isPaid) return fetch(input, init)
    return new Response(null, { status: 302, headers: { location } })
  }
  const failed = wrapFetch(loop, await payment(false))(`${seller.url}/weather`)
  await expect(failed).rejects.toMatchObject({
    code: 'network_error',
    message: expect.stringContaining(reason),
    payment: { amount: 50_000n },
  })
})

test('error: in a browser, which hides redirect targets, the client asks the caller to request the final URL', async () => {
  const seller = await sellers.open('fetch')
  const inBrowser: typeof fetch = async (input, init) => {
    if (init?.redirect !== 'manual') return fetch(input, init)
    const hidden = new Response(null)
    Object.defineProperties(hidden, { type: { value: 'opaqueredirect' }, status: { value: 0 } })
    return hidden
  }
  const failed = wrapFetch(inBrowser, await payment(false))(`${seller.url}/weather`)
  await expect(failed).rejects.toMatchObject({
    message: expect.stringContaining('request the URL that it redirects to'),
  })
})

test('behavior: if the body of a paid request is a stream, repeatPaid sends the request only to its original origin', async () => {
  const seen: IncomingHttpHeaders[] = []
  const elsewhere = await listen(
    createServer((request, response) => {
      seen.push(request.headers)
      response.end('elsewhere')
    }),
  )
  const origin = await listen(
    createServer((request, response) => {
      request.resume().on('end', () => response.writeHead(303, { location: `${elsewhere}/there` }).end())
    }),
  )
  const response = await repeatPaid(fetch)(origin, {
    method: 'POST',
    headers: { 'payment-signature': 'signed' },
    body: new Blob(['asked']).stream(),
    duplex: 'half',
  } as RequestInit)
  expect([await response.text(), seen.length, seen.some(isPayment)]).toEqual(['elsewhere', 1, false])
})
