/*
 * A load generator that uses as little CPU time as possible, because it shares the cores with the measured programs. It sends raw HTTP/1.1
 * on keep-alive sockets, renders requests in advance, and parses bodies afterwards.
 */
import { once } from 'node:events'
import { connect } from 'node:net'
import { setTimeout as delay } from 'node:timers/promises'

export type Answer = { status: number; body: Buffer }

/** The requests to send, and the check of their answers. Default: the status must be 200. */
export type Requests = { requests: readonly Buffer[]; isRight?: (answer: Answer, index: number) => boolean }

export type Load = Requests & {
  port: number
  connections: number
  /** A fixed rate, independent of the answers. Default: each connection sends its next request after the answer to the previous one. */
  perSecond?: number | undefined
}

/** Renders a whole request as bytes. */
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

/**
 * Sends all requests.
 *
 * @returns answers and times in the order of the requests. At a fixed rate, the time of a request starts when the request was due. So
 *   if a server stalls, the requests that should have been sent in the meantime also count as slow.
 */
export async function send({ port, requests, connections, perSecond, isRight = isOk }: Load) {
  const count = Math.min(connections, requests.length)
  const lines = await Promise.all(Array.from({ length: count }, () => openLine(port)))
  const answers: Answer[] = new Array(requests.length)
  const ms: number[] = new Array(requests.length)
  let next = 0
  const began = performance.now()
  const sendOn = async (line: Line) => {
    while (next < requests.length) {
      const index = next++
      const due = perSecond === undefined ? performance.now() : began + (index / perSecond) * 1000
      const early = due - performance.now()
      if (early > 0) await delay(Math.ceil(early))
      answers[index] = await line.send(requests[index] as Buffer)
      ms[index] = performance.now() - due
    }
  }
  await Promise.all(lines.map(sendOn))
  const seconds = (performance.now() - began) / 1000
  for (const line of lines) line.close()
  for (const [index, answer] of answers.entries()) {
    if (isRight(answer, index)) continue
    const [asked] = (requests[index] as Buffer).toString('latin1').split(' HTTP')
    throw new Error(
      `${asked} (${index}) was answered ${answer.status}: ${answer.body.toString().slice(0, 500)}`,
    )
  }
  return { perSecond: requests.length / seconds, answers, ms }
}

/** Returns every `parts`-th request, starting at index `part`. Each part goes to a separate server. */
export const partOf = ({ requests, isRight = isOk }: Requests, parts: number, part: number): Requests => ({
  requests: requests.filter((_, index) => index % parts === part),
  isRight: (answer, index) => isRight(answer, index * parts + part),
})

const isOk = ({ status }: Answer) => status === 200

type Line = Awaited<ReturnType<typeof openLine>>

const endOfHead = Buffer.from('\r\n\r\n')

async function openLine(port: number) {
  const socket = connect({ port, host: '127.0.0.1', noDelay: true })
  await once(socket, 'connect')
  let waiting: PromiseWithResolvers<Answer> | undefined
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
    waiting?.resolve({ status: Number(text.slice(9, 12)), body: received.subarray(bodyAt) })
    received = undefined
  })
  return {
    send(request: Buffer): Promise<Answer> {
      waiting = Promise.withResolvers()
      socket.write(request)
      return waiting.promise
    },
    close: () => socket.destroy(),
  }
}
