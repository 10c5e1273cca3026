import { createServer } from 'node:http'
import { type Client, createClient } from '@tollkeeper/sdk/client/createClient'
import { wrapFetch } from '@tollkeeper/sdk/client/wrapFetch'
import { requirePayment } from '@tollkeeper/sdk/middleware/express'
import { repeatPaid } from '@tollkeeper/sdk/x402/repeatPaid'
import { x402Client } from '@x402/core/client'
import { ExactEvmScheme } from '@x402/evm/exact/client'
import { wrapFetchWithPayment } from '@x402/fetch'
import express from 'express'
import multer from 'multer'
import { expect, test } from 'vitest'
import { call } from '../support/gateway.ts'
import { listen, type SellerKind, sellerKinds, useSellers } from './sellers.ts'

// A request that is sent again with the same payment must be identical, byte for byte, because sellers bind a
// payment's answer to the request.

const sellers = useSellers()
const { payment } = sellers

function formOf(file = 'rain'): FormData {
  const form = new FormData()
  form.set('city', 'Bern\r\n"quoted"')
  form.append('map', new File([file], 'map.txt', { type: 'text/plain' }))
  return form
}

const streamed = (text: string) => new Blob([text]).stream()
/** Arguments that a caller passes to `fetch`. They are created again for each call. */
const bodies: Record<string, (url: string) => Parameters<typeof fetch>> = {
  'a form': (url) => [url, { method: 'POST', body: formOf() }],
  'a Blob': (url) => [url, { method: 'POST', body: new Blob(['rain'], { type: 'text/plain' }) }],
  bytes: (url) => [url, { method: 'POST', body: new TextEncoder().encode('rain') }],
  'a query': (url) => [url, { method: 'POST', body: new URLSearchParams({ city: 'Bern' }) }],
  text: (url) => [url, { method: 'POST', body: 'rain' }],
  'a Request of a form': (url) => [
    new Request(url, { method: 'POST', body: new URLSearchParams({ a: '1' }) }),
  ],
  'a Request of a stream': (url) => [
    new Request(url, { method: 'POST', body: streamed('rain'), duplex: 'half' } as RequestInit),
  ],
}
const isPaid = (init: RequestInit | undefined) =>
  ['authorization', 'payment-signature'].some((name) => new Headers(init?.headers).has(name))

/**
 * Opens a seller that counts its responses, and calls it with a body. The responses are lost until the connection is restored.
 */
async function loseAnswer(kind: SellerKind, argumentsFor: (url: string) => Parameters<typeof fetch>) {
  const seller = await sellers.open(kind, {
    handler: ({ body }) => Response.json({ answered: seller.served.length, bytes: body.length }),
  })
  let isCut = true
  /** The connection breaks after the handler has run. */
  const cutting: typeof fetch = async (input, init) => {
    const response = await fetch(input, init)
    if (!isCut || !isPaid(init)) return response
    await response.arrayBuffer()
    throw new TypeError('terminated')
  }
  const payingFetch = wrapFetch(cutting, await payment())
  const url = `${seller.url}/maps`
  await expect(payingFetch(...argumentsFor(url))).rejects.toMatchObject({ code: 'network_error' })
  isCut = false
  return { seller, response: await payingFetch(...argumentsFor(url)) }
}

test.each(sellerKinds)(
  'behavior: a buyer who repeats a body after a lost response gets that response from a seller with %s, and is charged once',
  async (kind) => {
    const lost = Object.entries(bodies).map(async ([name, argumentsFor]) => {
      const { seller, response } = await loseAnswer(kind, argumentsFor)
      expect([name, response.status, response.headers.get('idempotent-replayed')]).toEqual([
        name,
        200,
        'true',
      ])
      expect(await response.json()).toEqual({ answered: 1, bytes: seller.served[0]?.body.length })
      expect(seller.served.length).toBe(1)
      const { body } = await call<{ payments: unknown[] }>(
        sellers.state.app,
        'GET',
        `/providers/${seller.providerId}/payments`,
        { key: seller.apiKey },
      )
      expect(body.payments).toHaveLength(1)
    })
    await Promise.all(lost)
  },
)

test('behavior: if x402’s client sends a form again through repeatPaid, the seller serves it once', async () => {
  const seller = await sellers.open('hono')
  let cuts = 1
  const cutting: typeof fetch = async (input, init) => {
    const response = await fetch(input, init)
    if (!isPaid(init) || cuts-- <= 0) return response
    await response.arrayBuffer()
    throw new TypeError('terminated')
  }
  const { account } = await payment()
  const client = new x402Client().register('eip155:*', new ExactEvmScheme(account)).setSpendControls(false)
  const get = wrapFetchWithPayment(repeatPaid(cutting), client)
  const response = await get(`${seller.url}/maps`, { method: 'POST', body: formOf() })
  expect([response.status, response.headers.get('idempotent-replayed'), seller.served.length]).toEqual([
    200,
    'true',
    1,
  ])
})

test('behavior: encodes a form as fetch does, except that the boundary is derived from the content', async () => {
  const seller = await sellers.open('hono')
  const payingFetch = wrapFetch(fetch, await payment())
  const send = (form: FormData) => payingFetch(`${seller.url}/maps`, { method: 'POST', body: form })
  for (const file of ['rain', 'rain', 'snow']) expect((await send(formOf(file))).status).toBe(200)
  const types = seller.served.map(({ headers }) => headers.get('content-type') ?? '')
  expect([types[0] === types[1], types[0] === types[2]]).toEqual([true, false])
  const read = await new Response(seller.served[2]?.body, {
    headers: { 'content-type': types[2] ?? '' },
  }).formData()
  expect([...read.keys()]).toEqual(['city', 'map'])
  expect(read.get('city')).toBe('Bern\r\n"quoted"')
  const file = read.get('map') as File
  expect([file.name, file.type, await file.text()]).toEqual(['map.txt', 'text/plain', 'snow'])
})

/** Pays with a client, and returns what it presented. */
async function capture(url: string, request: Parameters<Client['request']>[1] = {}) {
  const presented: RequestInit[] = []
  const noting: typeof fetch = async (input, init) => {
    if (isPaid(init)) presented.push(init ?? {})
    return fetch(input, init)
  }
  await createClient({ ...(await payment()), fetch: noting }).request(url, request)
  return presented[0] as RequestInit
}

test.each(sellerKinds)(
  'behavior: if a response depends on Range or Accept, a seller with %s repeats it only to a request with the same headers',
  async (kind) => {
    const seller = await sellers.open(kind, {
      handler: ({ headers }) =>
        new Response(`${headers.get('range')} as ${headers.get('accept')?.split(',')[0]}`),
    })
    const url = `${seller.url}/film`
    const chosen = { range: 'bytes=0-99', accept: 'text/plain' }
    const { headers, ...init } = await capture(url, { headers: chosen })
    const again = async (change: Record<string, string>) => {
      const given = new Headers(headers)
      for (const [name, value] of Object.entries(change)) given.set(name, value)
      const response = await fetch(url, { ...init, headers: given })
      return [response.status, response.headers.get('idempotent-replayed')]
    }
    expect(await again({})).toEqual([200, 'true'])
    for (const change of [{ range: 'bytes=101-200' }, { accept: 'text/csv' }, { 'accept-language': 'de' }])
      expect(await again(change)).toEqual([409, null])
    expect(seller.served).toHaveLength(1)
  },
)

test.each([
  ['one file', () => multer().single('map')],
  ['several files', () => multer().array('map')],
  ['files of any name', () => multer().any()],
  ['files by field', () => multer().fields([{ name: 'map' }])],
])(
  'behavior: middleware behind multer for %s never answers a request with the response to another file',
  async (_, upload) => {
    const seller = await sellers.open('express', { registers: false })
    const gate = { gatewayUrl: sellers.state.url, providerId: seller.providerId, apiKey: seller.apiKey }
    let served = 0
    const app = express()
    app.post(
      '/maps',
      upload(),
      requirePayment({ ...gate, pricing: { usdcPerUnit: '0.05' } }),
      (_request, response) => {
        served++
        response.send(`answer ${served}`)
      },
    )
    const origin = await listen(createServer(app))
    const own = {
      key: seller.apiKey,
      json: { url: `${origin}/maps`, method: 'POST', pricing: { usdcPerUnit: '0.05' } },
    }
    await call(sellers.state.app, 'POST', `/providers/${seller.providerId}/endpoints`, own)
    const presented: Headers[] = []
    const noting: typeof fetch = async (input, init) => {
      if (isPaid(init)) presented.push(new Headers(init?.headers))
      return fetch(input, init)
    }
    const first = await wrapFetch(noting, await payment())(`${origin}/maps`, {
      method: 'POST',
      body: formOf(),
    })
    expect(await first.text()).toBe('answer 1')
    const again = async (form: FormData) => {
      const headers = new Headers(presented[0])
      headers.delete('content-type')
      const response = await fetch(`${origin}/maps`, { method: 'POST', headers, body: form })
      return [response.status, response.headers.get('idempotent-replayed')]
    }
    expect(await again(formOf())).toEqual([200, 'true'])
    expect(await again(formOf('snow'))).toEqual([409, null])
  },
)

test('behavior: behind multer that writes to disk, stores no response, because the files’ contents are unknown', async () => {
  const upload = multer({ storage: multer.diskStorage({}) }).single('map')
  const seller = await sellers.open('express', { registers: false })
  const app = express()
  const gate = { gatewayUrl: sellers.state.url, providerId: seller.providerId, apiKey: seller.apiKey }
  app.post('/maps', upload, requirePayment({ ...gate, pricing: { usdcPerUnit: '0.05' } }), (_, response) => {
    response.send('answer')
  })
  const origin = await listen(createServer(app))
  const own = {
    key: seller.apiKey,
    json: { url: `${origin}/maps`, method: 'POST', pricing: { usdcPerUnit: '0.05' } },
  }
  await call(sellers.state.app, 'POST', `/providers/${seller.providerId}/endpoints`, own)
  const presented: RequestInit[] = []
  const noting: typeof fetch = async (input, init) => {
    if (isPaid(init)) presented.push(init ?? {})
    return fetch(input, init)
  }
  await wrapFetch(noting, await payment())(`${origin}/maps`, { method: 'POST', body: formOf() })
  const again = await fetch(`${origin}/maps`, presented[0])
  expect([again.status, (await again.json()).detail]).toEqual([
    409,
    expect.stringContaining('the body of the request is unknown'),
  ])
})
