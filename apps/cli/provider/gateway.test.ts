import { once } from 'node:events'
import { createServer, type RequestListener } from 'node:http'
import type { AddressInfo } from 'node:net'
import { expect, onTestFinished, test } from 'vitest'
import { request } from './gateway.ts'

async function listen(listener: RequestListener): Promise<string> {
  const server = createServer(listener).listen(0, '127.0.0.1')
  await once(server, 'listening')
  onTestFinished(() => {
    server.closeAllConnections()
    server.close()
  })
  return `http://127.0.0.1:${(server.address() as AddressInfo).port}`
}

test.each([301, 307, 308])('error: sends nothing to another origin after a %d redirect', async (status) => {
  let arrived = 0
  const elsewhere = await listen((_, response) => {
    arrived++
    response.end('{}')
  })
  const gateway = await listen((_, response) =>
    response.writeHead(status, { location: `${elsewhere}/there` }).end(),
  )
  const asked = request({ gateway, apiKey: 'tk_1' }, { path: '/providers', body: { signature: '0x' } })
  await expect(asked).rejects.toMatchObject({
    code: 'gateway_redirects',
    message: expect.stringContaining(`${gateway} redirects to ${elsewhere}/there`),
  })
  expect(arrived).toBe(0)
})

test('behavior: follows a redirect within the origin, and sends the API key', async () => {
  const gateway = await listen(({ url, headers }, response) => {
    if (url === '/providers') response.writeHead(308, { location: '/v1/providers' }).end()
    else response.writeHead(201).end(JSON.stringify({ url, key: headers.authorization }))
  })
  const answer = await request({ gateway, apiKey: 'tk_1' }, { path: '/providers', body: {} })
  expect(answer).toEqual({ url: '/v1/providers', key: 'Bearer tk_1' })
})
