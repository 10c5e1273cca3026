import { gunzipSync } from 'node:zlib'
import { Hono } from 'hono'
import { expect, test } from 'vitest'
import { useGateway, useShop } from '../../test/support/useGateway.ts'
import { answerJson } from './answerJson.ts'

const gateway = useGateway()
const shop = useShop(gateway)
const rows = Array.from({ length: 200 }, (_, number) => ({ number, status: 'settled' }))
const long = JSON.stringify({ rows })

const app = new Hono()
app.get('/long', (c) => answerJson(c, long))
app.get('/short', (c) => answerJson(c, '{}'))
const get = (path: string, headers: Record<string, string> = {}) => app.request(path, { headers })

test('behavior: a long answer is compressed for a client that accepts gzip', async () => {
  const answer = await get('/long', { 'accept-encoding': 'deflate, gzip;q=0.8' })
  expect(answer.headers.get('content-encoding')).toBe('gzip')
  expect(answer.headers.get('vary')).toContain('Accept-Encoding')
  const body = Buffer.from(await answer.arrayBuffer())
  expect(body.byteLength).toBeLessThan(long.length / 5)
  expect(gunzipSync(body).toString()).toBe(long)
})

test.each([
  ['/long', ''],
  ['/long', 'br'],
  ['/long', 'gzip;q=0'],
  ['/long', '*;q=0'],
  ['/short', 'gzip'],
])('behavior: %s is not compressed for Accept-Encoding “%s”', async (path, encoding) => {
  const answer = await get(path, { 'accept-encoding': encoding })
  expect(answer.headers.get('content-encoding')).toBeNull()
  expect(answer.headers.get('content-type')).toContain('application/json')
})

test('behavior: a client whose copy is current gets 304 without a body', async () => {
  const etag = (await get('/long')).headers.get('etag') ?? ''
  for (const named of [etag, `"other", ${etag}`, etag.replace('W/', '')]) {
    const answer = await get('/long', { 'if-none-match': named })
    expect([answer.status, await answer.text()]).toEqual([304, ''])
  }
  expect((await get('/short', { 'if-none-match': etag })).status).toBe(200)
})

test('behavior: the answer to a read is compressed, but an answer that shows a secret is not', async () => {
  const path = `/providers/${shop.providerId}/keys`
  const authorization = `Bearer ${shop.key}`
  const headers = { authorization, 'accept-encoding': 'gzip', 'content-type': 'application/json' }
  const ask = (method: string, body?: string) =>
    gateway.app.request(path, { method, headers, ...(body !== undefined && { body }) })
  for (let count = 0; count < 9; count++) {
    const issued = await ask('POST', JSON.stringify({ label: 'x'.repeat(100) }))
    expect([issued.status, issued.headers.get('content-encoding'), issued.headers.get('etag')]).toEqual([
      201,
      null,
      null,
    ])
  }
  const listed = await ask('GET')
  expect([listed.status, listed.headers.get('content-encoding')]).toEqual([200, 'gzip'])
  // No intermediate cache stores the list.
  expect(listed.headers.get('cache-control')).toBe('no-store')
})
