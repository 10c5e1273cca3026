/*
 * A load generator that takes as little of the machine as it can: it shares the cores with what it measures. Raw
 * HTTP/1.1 on keep-alive sockets; requests are rendered beforehand, and bodies are kept as bytes and parsed afterwards.
 */
import { once } from 'node:events'
import { connect, type Socket } from 'node:net'

export type Answer = { status: number; body: Buffer }

export type Load = { port: number; requests: readonly Buffer[]; connections: number }

/** A whole request as bytes. */
export function renderPost(path: string, body: unknown, headers: Record<string, string> = {}): Buffer {
  const json = JSON.stringify(body)
  const lines = Object.entries({
    host: '127.0.0.1',
    'content-type': 'application/json',
    'content-length': String(Buffer.byteLength(json)),
    ...headers,
  }).map(([name, value]) => `${name}: ${value}\r\n`)
  return Buffer.from(`POST ${path} HTTP/1.1\r\n${lines.join('')}\r\n${json}`)
}

/** Sends everything as fast as possible: each connection sends its next request when the last one is answered. */
export async function saturate({ port, requests, connections }: Load): Promise<{
  perSecond: number
  answers: Answer[]
  /** How long each took, in the order of the requests. */
  ms: number[]
}> {
  const lines = await openLines(port, Math.min(connections, requests.length))
  const answers: Answer[] = new Array(requests.length)
  const ms: number[] = new Array(requests.length)
  let next = 0
  const began = performance.now()
  await Promise.all(
    lines.map(async (line) => {
      while (next < requests.length) {
        const index = next++
        const sent = performance.now()
        answers[index] = await line.send(requests[index] as Buffer)
        ms[index] = performance.now() - sent
      }
    }),
  )
  const seconds = (performance.now() - began) / 1000
  for (const line of lines) line.close()
  return { perSecond: requests.length / seconds, answers, ms }
}

/**
 * Sends at a fixed rate, whatever comes back. The time of a request counts from when it was due, so a server that
 * stalls is seen to be late with all that should have been sent meanwhile.
 */
export async function pace({
  port,
  requests,
  connections,
  perSecond,
}: Load & { perSecond: number }): Promise<{
  /** In the order of the requests. */
  ms: number[]
  answers: Answer[]
}> {
  const idle = await openLines(port, connections)
  const all = [...idle]
  const answers: Answer[] = new Array(requests.length)
  const ms: number[] = new Array(requests.length)
  let answered = 0
  const due: number[] = []
  const began = performance.now()
  let next = 0
  await new Promise<void>((resolve, reject) => {
    const work = () => {
      while (due.length > 0 && idle.length > 0) {
        const index = due.shift() as number
        // In turn: one that rests for seconds is closed by the server, and would never hear its answer.
        const line = idle.shift() as Line
        line.send(requests[index] as Buffer).then((answer) => {
          answers[index] = answer
          ms[index] = performance.now() - began - (index / perSecond) * 1000
          idle.push(line)
          if (++answered === requests.length) resolve()
          else work()
        }, reject)
      }
    }
    const timer = setInterval(() => {
      const elapsed = (performance.now() - began) / 1000
      while (next < requests.length && next / perSecond <= elapsed) due.push(next++)
      work()
      if (next === requests.length) clearInterval(timer)
    }, 1)
  })
  for (const line of all) line.close()
  return { ms, answers }
}

export type Line = { send(request: Buffer): Promise<Answer>; close(): void }

async function openLines(port: number, count: number): Promise<Line[]> {
  return Promise.all(Array.from({ length: count }, () => openLine(port)))
}

const endOfHead = Buffer.from('\r\n\r\n')

async function openLine(port: number): Promise<Line> {
  const socket: Socket = connect({ port, host: '127.0.0.1', noDelay: true })
  await once(socket, 'connect')
  let waiting: { resolve: (answer: Answer) => void; reject: (error: Error) => void } | undefined
  let received: Buffer | undefined
  const fail = (error: Error) => waiting?.reject(error)
  socket.on('error', fail)
  socket.on('close', () => fail(new Error('the server closed the connection')))
  socket.on('data', (chunk: Buffer) => {
    received = received === undefined ? chunk : Buffer.concat([received, chunk])
    const head = received.indexOf(endOfHead)
    if (head === -1) return
    const text = received.toString('latin1', 0, head)
    const length = /content-length: *(\d+)/i.exec(text)?.[1]
    if (length === undefined) return fail(new Error(`an answer without content-length:\n${text}`))
    const bodyAt = head + endOfHead.length
    if (received.length < bodyAt + Number(length)) return
    const answer = { status: Number(text.slice(9, 12)), body: received.subarray(bodyAt) }
    received = undefined
    const done = waiting
    waiting = undefined
    done?.resolve(answer)
  })
  return {
    send: (request) =>
      new Promise((resolve, reject) => {
        waiting = { resolve, reject }
        socket.write(request)
      }),
    close: () => {
      waiting = undefined
      socket.destroy()
    },
  }
}
