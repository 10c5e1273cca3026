import { once } from 'node:events'
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http'
import type { AddressInfo } from 'node:net'
import { Readable } from 'node:stream'
import { text } from 'node:stream/consumers'
import { createAddressGuard } from '@tollkeeper/runtime/addressGuard'
import { expect, onTestFinished, test } from 'vitest'
import type { UpstreamSettings } from '../../http/settings.ts'
import { createForward } from './forward.ts'

const hour = 3_600_000
const settings: UpstreamSettings = {
  allowPrivate: true,
  maxBodyBytes: 10_000_000,
  connectTimeoutMs: hour,
  answerTimeoutMs: hour,
  idleTimeoutMs: hour,
  uploadTimeoutMs: hour,
  concurrency: 1,
}
/** More parts than fit into the buffers on the way. */
const bodyParts = 1_000
const part = Buffer.alloc(65_536)

type Upstream = (request: IncomingMessage, response: ServerResponse) => void

/** Sends a body that doesn't fit into the buffers on the way, and returns the answer and the stream from which the body is read. */
async function sendLong(limits: Partial<UpstreamSettings>, upstream: Upstream) {
  const server = createServer(upstream).listen(0, '127.0.0.1')
  await once(server, 'listening')
  onTestFinished(() => {
    server.closeAllConnections()
    server.close()
  })
  const forward = createForward({
    guard: createAddressGuard({ allowPrivate: true }),
    settings: { ...settings, ...limits },
  })
  let read = 0
  const body = Readable.from(
    (function* () {
      for (; read < bodyParts; read++) yield part
    })(),
  )
  const answer = await forward.send({
    providerId: 'prov_1',
    url: new URL(`http://127.0.0.1:${(server.address() as AddressInfo).port}`),
    method: 'POST',
    headers: { 'content-length': String(bodyParts * part.length) },
    body: () => body,
    cut: () => expect.unreachable(),
  })
  if (!answer.body) throw new Error('The answer has no body')
  return { body, answer: text(answer.body), partsRead: () => read }
}

/** Answers byte by byte until `end` is called. */
function trickle(response: ServerResponse) {
  const timer = setInterval(() => response.write('.'), 10)
  response.once('close', () => clearInterval(timer))
  return {
    end() {
      clearInterval(timer)
      response.end('end')
    },
  }
}

test('behavior: stops sending a request body that the upstream doesn’t read, and still passes on the upstream’s whole answer', async () => {
  const begun = Promise.withResolvers<ReturnType<typeof trickle>>()
  const sent = await sendLong({ idleTimeoutMs: 200 }, (_, response) => begun.resolve(trickle(response)))
  if (!sent.body.closed) await once(sent.body, 'close')
  expect(sent.partsRead()).toBeLessThan(bodyParts)
  const answering = await begun.promise
  answering.end()
  expect(await sent.answer).toMatch(/^\.+end$/)
})

test('behavior: stops sending a request body that the upstream reads too slowly, and still passes on the upstream’s whole answer', async () => {
  const begun = Promise.withResolvers<ReturnType<typeof trickle>>()
  const sent = await sendLong({ uploadTimeoutMs: 500 }, (request, response) => {
    begun.resolve(trickle(response))
    const timer = setInterval(() => request.read(1), 10)
    request.once('close', () => clearInterval(timer))
  })
  if (!sent.body.closed) await once(sent.body, 'close')
  expect(sent.partsRead()).toBeLessThan(bodyParts)
  const answering = await begun.promise
  answering.end()
  expect(await sent.answer).toMatch(/^\.+end$/)
})

test('behavior: sends the whole request body if the upstream reads the body while it is answering', async () => {
  const sent = await sendLong({}, async (request, response) => {
    response.write('begun ')
    let length = 0
    for await (const chunk of request) length += (chunk as Buffer).length
    response.end(String(length))
  })
  expect(await sent.answer).toBe(`begun ${bodyParts * part.length}`)
})
