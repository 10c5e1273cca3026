import { once } from 'node:events'
import { Agent, get } from 'node:http'
import { connect, type Socket } from 'node:net'
import { text } from 'node:stream/consumers'
import { setTimeout } from 'node:timers/promises'
import { afterEach, describe, expect, test } from 'vitest'
import { type RunningServer, type ServeOptions, serve } from './serve.ts'

const sockets: Socket[] = []
let server: RunningServer | undefined
afterEach(async () => {
  for (const socket of sockets.splice(0)) socket.destroy()
  await server?.close()
})

/** Starts a server that responds to requests for `/slow` when `answer` is called. */
async function start(
  options: Partial<Pick<ServeOptions, 'maxConnections' | 'headersTimeoutMs' | 'uploads'>>,
) {
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
        if (request.method === 'POST')
          return new Response(`${(await request.arrayBuffer()).byteLength} bytes`)
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

test('behavior: accepts connections of all hosts although one host has many silent connections', async () => {
  await start({ maxConnections: 3 })
  const other = await open('127.0.0.2')
  const [first, second] = [await open(), await open()]
  expect(await ask(await open())).toBe('HTTP/1.1 200 OK')
  expect(await isClosed(first)).toBe(true)
  expect(await ask(await open('127.0.0.3'))).toBe('HTTP/1.1 200 OK')
  expect(await isClosed(second)).toBe(true)
  // The other host's connection is the oldest, but it stays open, because the first host has more idle connections.
  expect(await ask(other)).toBe('HTTP/1.1 200 OK')
})

test('behavior: ends a connection that is idle after a request rather than a connection with a request in progress', async () => {
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

test('behavior: rejects a further connection if every open connection has a request in progress', async () => {
  const { answer, untilAsked } = await start({ maxConnections: 1 })
  const busy = await open()
  const isAsked = untilAsked()
  const answered = ask(busy, '/slow')
  await isAsked
  expect(await isClosed(await open())).toBe(true)
  answer()
  expect(await answered).toBe('HTTP/1.1 200 OK')
})

test('behavior: ends an incomplete request of a host that has many of them, to accept a further connection', async () => {
  const { untilAsked } = await start({ maxConnections: 10 })
  const uploads: Socket[] = []
  for (let count = 0; count < 10; count++) {
    const isBegun = untilAsked()
    const socket = await post(10, '/slow')
    socket.write('half')
    await isBegun
    uploads.push(socket)
  }
  expect(await ask(await open('127.0.0.2'))).toBe('HTTP/1.1 200 OK')
  expect(await isClosed(uploads[0] as Socket)).toBe(true)
  expect(uploads[1]?.destroyed).toBe(false)
})

test('behavior: closes a connection that sends nothing, or never finishes its headers', async () => {
  await start({ headersTimeoutMs: 100 })
  const [silent, slow] = [await open(), await open()]
  slow.write('GET / HTTP/1.1\r\nHost: a')
  expect(await isClosed(silent)).toBe(true)
  expect(await isClosed(slow)).toBe(true)
})

describe('when the process stops', () => {
  /** Reads until the server ends the connection. */
  async function readToEnd(socket: Socket): Promise<string> {
    const chunks: Buffer[] = []
    for await (const chunk of socket) chunks.push(chunk as Buffer)
    return Buffer.concat(chunks).toString()
  }
  const request = (path = '/') => `GET ${path} HTTP/1.1\r\nHost: a\r\n\r\n`

  test('default: responds to a request on an open connection, and asks the client to close', async () => {
    await start({})
    const kept = await open()
    expect(await ask(kept)).toBe('HTTP/1.1 200 OK')
    const closed = server?.close()
    kept.write(request())
    const answer = await readToEnd(kept)
    expect(answer).toMatch(/^HTTP\/1\.1 200 OK\r\n/)
    expect(answer).toMatch(/\r\nconnection: close\r\n/i)
    expect(answer).toMatch(/here$/)
    await closed
  })

  test('behavior: responds completely to a request in progress, and closes its connection', async () => {
    const { answer, untilAsked } = await start({})
    const busy = await open()
    const isAsked = untilAsked()
    busy.write(request('/slow'))
    await isAsked
    let isClosed = false
    const closed = server?.close().then(() => {
      isClosed = true
    })
    // After one second, connections without a request are closed, but this request is still in progress.
    await setTimeout(1_200)
    expect(isClosed).toBe(false)
    answer()
    const text = await readToEnd(busy)
    expect(text).toMatch(/\r\nconnection: close\r\n/i)
    expect(text).toMatch(/here$/)
    await closed
  })

  test('behavior: loses no request under continuous load, and closes each open connection after its next response', async () => {
    await start({})
    const agent = new Agent({ keepAlive: true, maxSockets: 20 })
    const url = `http://127.0.0.1:${server?.port}/`
    const ask = () =>
      new Promise<string>((resolve, reject) => {
        get(url, { agent }, (response) => {
          response.resume().once('end', () => resolve(String(response.statusCode)))
        }).once('error', reject)
      })
    const outcomes: string[] = []
    const clients = Array.from({ length: 20 }, async () => {
      for (;;) {
        const outcome = await ask().catch((error: NodeJS.ErrnoException) => error.code ?? '')
        outcomes.push(outcome)
        // The server refused the connection, so this request was never sent and isn't lost.
        if (outcome === 'ECONNREFUSED') return
      }
    })
    while (outcomes.length < 200) await setTimeout(10)
    const before = outcomes.length
    await server?.close()
    await Promise.all(clients)
    agent.destroy()
    expect(new Set(outcomes)).toEqual(new Set(['200', 'ECONNREFUSED']))
    // While the server stops, it serves at most two requests on each connection: the request in progress, and one more.
    const later = outcomes.slice(before).filter((outcome) => outcome === '200')
    expect(later.length).toBeLessThanOrEqual(40)
  })

  test('behavior: closes connections that sent nothing, or only half a request', async () => {
    await start({})
    const [silent, half] = [await open(), await open()]
    half.write('GET / HTTP/1.1\r\nHost: a')
    await server?.close()
    expect([await isClosed(silent), await isClosed(half)]).toEqual([true, true])
  })
})

/** Begins a POST with a body of this length. */
async function post(length: number, path = '/'): Promise<Socket> {
  const socket = await open()
  socket.write(`POST ${path} HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Length: ${length}\r\n\r\n`)
  return socket
}

const second = 1_000

describe('the body of a request', () => {
  test('behavior: may take longer than the limit while its bytes keep arriving', async () => {
    await start({ uploads: { silenceMs: second, minBytesPerSecond: 1 } })
    const socket = await post(10)
    const answer = text(socket)
    for (let sent = 0; sent < 10; sent++) {
      socket.write('x')
      await setTimeout(second / 4)
    }
    expect(await answer).toMatch(/10 bytes$/)
  })

  test('error: is rejected with a code if it stops arriving, and its connection is closed', async () => {
    await start({ uploads: { silenceMs: second / 4 } })
    const socket = await post(10)
    socket.write('half')
    const answer = await text(socket)
    expect(answer).toMatch(/^HTTP\/1.1 408 Request Timeout\r\nConnection: close\r\n/)
    expect(JSON.parse(answer.split('\r\n\r\n')[1] ?? '')).toMatchObject({
      status: 408,
      code: 'request_timeout',
    })
  })

  test('error: is rejected if its bytes keep arriving, but more slowly than any real link delivers them', async () => {
    await start({ uploads: { silenceMs: second, minBytesPerSecond: 1_000 } })
    const socket = await post(1_000)
    const timer = setInterval(() => socket.write('x'), 100)
    expect(await text(socket).finally(() => clearInterval(timer))).toMatch(/^HTTP\/1.1 408 /)
  })

  test('behavior: is not rejected if it takes long only because the server does not read it', async () => {
    const { answer, untilAsked } = await start({ uploads: { silenceMs: second / 4 } })
    const isAsked = untilAsked()
    const socket = await post(1_000_000, '/slow')
    await isAsked
    socket.write(Buffer.alloc(1_000_000))
    await setTimeout(second)
    const answered = text(socket)
    answer()
    expect(await answered).toMatch(/1000000 bytes$/)
  })
})
