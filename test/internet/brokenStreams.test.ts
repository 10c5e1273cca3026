import { once } from 'node:events'
import { createServer, request as requestHttp } from 'node:http'
import { createAdaptorServer } from '@hono/node-server'
import { createClient } from '@tollkeeper/sdk/client/createClient'
import { requirePayment as requireExpressPayment } from '@tollkeeper/sdk/middleware/express'
import { requirePayment as requireFetchPayment } from '@tollkeeper/sdk/middleware/fetch'
import { requirePayment } from '@tollkeeper/sdk/middleware/hono'
import { encodeUtf8 } from '@tollkeeper/sdk/protocol/bytes'
import express from 'express'
import { Hono } from 'hono'
import { expect, test } from 'vitest'
import { call } from '../support/gateway.ts'
import { listen, useSellers } from './sellers.ts'

// Sellers of server-sent events stop writing when their buyer disconnects, and then end the stream. So the end of a stream
// doesn't mean that the stream is complete.

const sellers = useSellers()
const pricing = { usdcPerUnit: '0.05' }
const events = 41

/** The buyer of a stream: `left` resolves once it has disconnected. */
type Ending = { left: Promise<void>; leave: () => void }

/**
 * Writes two events, and waits until the buyer has disconnected. Then stops, or if `isCounted`, writes the rest of the events that the Content-Length
 * announces.
 */
async function* write({ left }: Ending, isCounted: boolean) {
  yield 'data: 0\n\n'
  yield 'data: 1\n\n'
  await left
  if (isCounted) for (let event = 2; event < events; event++) yield `data: ${event % 10}\n\n`
}

const headersOf = (isCounted: boolean) => ({
  'content-type': 'text/event-stream',
  ...(isCounted && { 'content-length': String(events * 9) }),
})

type Gate = Parameters<typeof requirePayment>[0]

const frameworks = {
  express: (gate: Gate, ending: Ending, isCounted: boolean) =>
    createServer(
      express().get('/events', requireExpressPayment(gate), async (request, response) => {
        request.once('close', ending.leave)
        response.writeHead(200, headersOf(isCounted))
        for await (const event of write(ending, isCounted)) response.write(event)
        response.end()
      }),
    ),
  hono: (gate: Gate, ending: Ending, isCounted: boolean) => {
    const app = new Hono().get('/events', requirePayment(gate), (c) => {
      c.req.raw.signal.addEventListener('abort', ending.leave)
      return new Response(streamOf(ending, isCounted), { headers: headersOf(isCounted) })
    })
    return createAdaptorServer({ fetch: app.fetch })
  },
  fetch: (gate: Gate, ending: Ending, isCounted: boolean) => {
    const paid = requireFetchPayment(gate)((request) => {
      request.signal.addEventListener('abort', ending.leave)
      return new Response(streamOf(ending, isCounted), { headers: headersOf(isCounted) })
    })
    return createAdaptorServer({ fetch: (request) => paid(request) })
  },
}

function streamOf(ending: Ending, isCounted: boolean): ReadableStream<Uint8Array> {
  const written = write(ending, isCounted)
  return new ReadableStream({
    async pull(controller) {
      const { value, done } = await written.next()
      if (done) controller.close()
      else controller.enqueue(encodeUtf8(value))
    },
  })
}

/** Opens a seller of events, and pays as a buyer who disconnects after the second one. */
async function leaveAfterTwo(framework: keyof typeof frameworks, isCounted: boolean) {
  const { state, gateway, open } = sellers
  const { providerId, apiKey } = await open('fetch', { registers: false })
  const { promise: left, resolve: leave } = Promise.withResolvers<void>()
  const gate = { gatewayUrl: state.url, providerId, apiKey, pricing }
  const server = frameworks[framework](gate, { left, leave }, isCounted)
  const url = `${await listen(server as ReturnType<typeof createServer>)}/events`
  const json = { url, method: 'GET', pricing }
  await call(state.app, 'POST', `/providers/${providerId}/endpoints`, { key: apiKey, json })
  const client = createClient({
    gatewayUrl: state.url,
    network: 'localhost',
    account: await gateway.buyer(1_000_000n),
    usdcAddress: gateway.served.token,
    limits: { perPayment: '1' },
    tabs: false,
    // The client doesn't send the payment; the test sends it itself.
    fetch: async (input, init) => {
      const authorization = new Headers(init?.headers).get('authorization')
      if (authorization === null) return fetch(input, init)
      presented = authorization
      return new Response('noted')
    },
  })
  let presented = ''
  await client.request(url)
  const headers = { authorization: presented, accept: '*/*' }
  const asked = requestHttp(url, { headers }).end()
  const [response] = await once(asked, 'response')
  let read = ''
  for await (const chunk of response) {
    read += chunk
    if (read.includes('data: 1')) break
  }
  asked.destroy()
  await left
  return () => fetch(url, { headers })
}

const names = Object.keys(frameworks) as (keyof typeof frameworks)[]

test.each(names)(
  'error: %s does not repeat a stream as complete if the stream ended because the buyer disconnected',
  async (name) => {
    const present = await leaveAfterTwo(name, false)
    // Poll, because the answer has a Retry-After while the first request is still being served.
    await expect
      .poll(async () => {
        const response = await present()
        return [response.status, response.headers.get('retry-after'), (await response.json()).detail]
      })
      .toEqual([409, null, expect.stringContaining('its response was broken off')])
  },
)

test.each(names)(
  'behavior: %s repeats a stream that reached its Content-Length, although the buyer disconnected',
  async (name) => {
    const present = await leaveAfterTwo(name, true)
    await expect
      .poll(async () => {
        const response = await present()
        return [response.status, response.headers.get('idempotent-replayed'), (await response.text()).length]
      })
      .toEqual([200, 'true', events * 9])
  },
)
