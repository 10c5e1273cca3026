import { once } from 'node:events'
import { connect, type Socket } from 'node:net'
import { afterEach, expect, test } from 'vitest'
import { type RunningServer, serve } from './serve.ts'

const sockets: Socket[] = []
let server: RunningServer | undefined
afterEach(async () => {
  for (const socket of sockets.splice(0)) socket.destroy()
  await server?.close()
})

/** Starts a server that answers requests of `/slow` once `answer` is called. */
async function start(options: { maxConnections?: number; headersTimeoutMs?: number }) {
  const slow: (() => void)[] = []
  const isAsked: (() => void)[] = []
  server = await serve(
    {
      fetch: async (request) => {
        if (new URL(request.url).pathname === '/slow') {
          const answered = new Promise<void>((resolve) => slow.push(resolve))
          isAsked.shift()?.()
          await answered
        }
        return new Response('here')
      },
    },
    { host: '127.0.0.1', port: 0, portVariable: 'PORT', ...options },
  )
  return {
    answer: () => slow.shift()?.(),
    untilAsked: () => new Promise<void>((resolve) => isAsked.push(resolve)),
  }
}

async function open(localAddress = '127.0.0.1'): Promise<Socket> {
  const socket = connect({ host: '127.0.0.1', port: server?.port ?? 0, localAddress })
  sockets.push(socket)
  socket.on('error', () => {})
  await once(socket, 'connect')
  return socket
}

async function ask(socket: Socket, path = '/'): Promise<string> {
  const closed = once(socket, 'close').then(() => ['closed'])
  socket.write(`GET ${path} HTTP/1.1\r\nHost: a\r\n\r\n`)
  const [answer] = await Promise.race([once(socket, 'data'), closed])
  return String(answer).split('\r\n')[0] ?? ''
}

const isClosed = async (socket: Socket) => {
  if (!socket.destroyed) await once(socket.resume(), 'close')
  return true
}

test('behavior: silent connections of one host shut out neither another host nor its own next one', async () => {
  await start({ maxConnections: 3 })
  const other = await open('127.0.0.2')
  const [first, second] = [await open(), await open()]
  expect(await ask(await open())).toBe('HTTP/1.1 200 OK')
  expect(await isClosed(first)).toBe(true)
  expect(await ask(await open('127.0.0.3'))).toBe('HTTP/1.1 200 OK')
  expect(await isClosed(second)).toBe(true)
  // It is the oldest connection, but its host has no more of them than this one.
  expect(await ask(other)).toBe('HTTP/1.1 200 OK')
})

test('behavior: connections that rest after a request make room, too; one with a request under way does not', async () => {
  const { answer, untilAsked } = await start({ maxConnections: 2 })
  const busy = await open()
  const isAsked = untilAsked()
  const answered = ask(busy, '/slow')
  await isAsked
  const rested = await open()
  expect(await ask(rested)).toBe('HTTP/1.1 200 OK')
  expect(await ask(await open())).toBe('HTTP/1.1 200 OK')
  expect(await isClosed(rested)).toBe(true)
  answer()
  expect(await answered).toBe('HTTP/1.1 200 OK')
})

test('behavior: with a request under way on each, a further connection is refused', async () => {
  const { answer, untilAsked } = await start({ maxConnections: 1 })
  const busy = await open()
  const isAsked = untilAsked()
  const answered = ask(busy, '/slow')
  await isAsked
  expect(await isClosed(await open())).toBe(true)
  answer()
  expect(await answered).toBe('HTTP/1.1 200 OK')
})

test('behavior: a connection that says nothing, or never finishes its headers, is closed', async () => {
  await start({ headersTimeoutMs: 100 })
  const [silent, slow] = [await open(), await open()]
  slow.write('GET / HTTP/1.1\r\nHost: a')
  expect(await isClosed(silent)).toBe(true)
  expect(await isClosed(slow)).toBe(true)
})
