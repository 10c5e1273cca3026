import {
  type ClientRequest,
  Agent as HttpAgent,
  type IncomingMessage,
  request as requestHttp,
} from 'node:http'
import { Agent as HttpsAgent, request as requestHttps } from 'node:https'
import type { Readable } from 'node:stream'
import type { AddressGuard } from '@tollkeeper/runtime/addressGuard'
import { Refusal } from '../../http/refusal.ts'
import type { UpstreamSettings } from '../../http/settings.ts'

/** Limits for every upstream. An answer may take a minute to begin, and may pause for a minute, because language models think. */
export const upstreamLimits: Omit<UpstreamSettings, 'allowPrivate'> = {
  maxBodyBytes: 10_485_760,
  connectTimeoutMs: 5_000,
  answerTimeoutMs: 60_000,
  idleTimeoutMs: 60_000,
  uploadTimeoutMs: 300_000,
  concurrency: 100,
}

export type UpstreamRequest = {
  providerId: string
  url: URL
  method: string
  headers: Record<string, string>
  /** Reads the body, which has already arrived completely; null: there is none. */
  body: (() => Readable) | null
  /** Cuts the buyer's connection if the upstream breaks off, because a partial answer must not look complete. */
  cut: () => void
}

export type UpstreamAnswer = {
  status: number
  headers: NodeJS.Dict<string[]>
  body: ReadableStream<Uint8Array> | null
}

export type Forward = {
  /** @throws {Refusal} `upstream_busy` if the provider has reached its maximum of concurrent requests. */
  requireRoom(providerId: string): void
  /**
   * Passes a request on. It waits only for the head of the answer; the body moves as fast as the buyer reads it.
   *
   * @throws {Refusal} `upstream_failed`, `upstream_timeout`, `upstream_busy`
   */
  send(request: UpstreamRequest): Promise<UpstreamAnswer>
}

/**
 * Creates the client that calls providers' servers.
 *
 * It uses Node's own client rather than fetch, for the reasons given in packages/runtime/send.ts, and because fetch decompresses answers
 * that should pass unchanged.
 */
export function createForward({
  guard,
  settings,
}: {
  guard: AddressGuard
  settings: UpstreamSettings
}): Forward {
  const pool = { keepAlive: true, maxFreeSockets: 16 }
  const agents = { http: new HttpAgent(pool), https: new HttpsAgent(pool) }
  const underWay = new Map<string, number>()

  function requireRoom(providerId: string): void {
    if ((underWay.get(providerId) ?? 0) >= settings.concurrency) throw new Refusal('upstream_busy')
  }

  function count(providerId: string, change: 1 | -1): void {
    const now = (underWay.get(providerId) ?? 0) + change
    if (now > 0) underWay.set(providerId, now)
    else underWay.delete(providerId)
  }

  function open({ url, method, headers, body }: UpstreamRequest, isAgain: boolean): ClientRequest {
    guard.checkLiteral(url)
    const options = { method, headers, lookup: guard.lookup }
    // A pooled connection may be closing at the moment when it is used. So only safe requests, which can be sent again, use the pool, and a request
    // that is sent again gets a new connection.
    const isPooled = !isAgain && body === null && isSafe(method)
    return url.protocol === 'https:'
      ? requestHttps(url, { ...options, agent: isPooled && agents.https })
      : requestHttp(url, { ...options, agent: isPooled && agents.http })
  }

  function exchange(request: UpstreamRequest, isAgain = false): Promise<UpstreamAnswer> {
    requireRoom(request.providerId)
    const outgoing = open(request, isAgain)
    const watch = createWatch(settings.connectTimeoutMs, (error) => outgoing.destroy(error))
    count(request.providerId, 1)
    outgoing.once('close', () => {
      watch.stop()
      count(request.providerId, -1)
    })
    let body: Readable | undefined
    outgoing.once('socket', (socket) => {
      const begin = () => {
        watch.allow(settings.answerTimeoutMs)
        if (request.body === null) return outgoing.end()
        body = request.body()
        upload(body, outgoing, watch)
      }
      if (socket.connecting)
        socket.once(request.url.protocol === 'https:' ? 'secureConnect' : 'connect', begin)
      else begin()
    })
    return new Promise((resolve, reject) => {
      outgoing.on('error', (error) =>
        reject(outgoing.reusedSocket && isReset(error) ? new Stale(error) : error),
      )
      // For example after an unrequested 101, the connection closes without an error.
      outgoing.once('close', () => reject(new Error('The connection was closed')))
      outgoing.on('response', (response) => {
        watch.allow(settings.idleTimeoutMs)
        if (body) limitUpload(body, outgoing, settings)
        // The answer may end before the request is complete; then the rest of the request is not needed.
        response.once('end', () => outgoing.writableFinished || outgoing.destroy())
        resolve(toAnswer(response, request, watch))
      })
    })
  }

  return {
    requireRoom,
    async send(request) {
      try {
        return await exchange(request).catch((error: unknown) => {
          if (!(error instanceof Stale)) throw error
          return exchange(request, true)
        })
      } catch (error) {
        throw toRefusal(error)
      }
    },
  }
}

/** RFC 9110 section 9.2.1. */
function isSafe(method: string): boolean {
  return method === 'GET' || method === 'HEAD' || method === 'OPTIONS'
}

/** The upstream closed a pooled connection just when it was used again (RFC 9112 section 9.3.1). */
class Stale extends Error {
  constructor(cause: Error) {
    super(cause.message, { cause })
  }
}

function isReset(error: NodeJS.ErrnoException): boolean {
  return error.code === 'ECONNRESET' || error.code === 'EPIPE'
}

/** Ends an exchange in which nothing has moved for too long. */
type Watch = {
  /** Sets the maximum time in ms without movement, and starts measuring it again. */
  allow(ms: number): void
  /** Reports that something has moved. */
  moved(): void
  stop(): void
}

function createWatch(limitMs: number, end: (error: Refusal) => void): Watch {
  let ms = limitMs
  let timer: NodeJS.Timeout | undefined
  const restart = () => {
    clearTimeout(timer)
    timer = setTimeout(() => end(new Refusal('upstream_timeout')), ms)
  }
  restart()
  return {
    allow(limit) {
      ms = limit
      restart()
    },
    moved: restart,
    stop: () => clearTimeout(timer),
  }
}

/** Sends a request's body, and reports each time that the upstream has read what it was given. */
function upload(body: Readable, outgoing: ClientRequest, watch: Watch): void {
  // A failure ends the request, which reports the failure.
  body.once('error', (error) => outgoing.destroy(error))
  outgoing.once('close', () => body.destroy())
  outgoing.on('drain', watch.moved).once('finish', watch.moved)
  body.pipe(outgoing)
}

/**
 * Stops reading a request's body if the upstream has begun to answer but doesn't read the body, because the body takes space. The answer continues,
 * because it may not need the rest of the body. Parts of the answer keep the exchange open, but give the body no more time.
 */
function limitUpload(
  body: Readable,
  outgoing: ClientRequest,
  { idleTimeoutMs, uploadTimeoutMs }: UpstreamSettings,
): void {
  if (body.closed) return
  const stop = () => body.destroy()
  const silence = createWatch(idleTimeoutMs, stop)
  const whole = setTimeout(stop, uploadTimeoutMs)
  outgoing.on('drain', silence.moved)
  body.once('close', () => {
    outgoing.off('drain', silence.moved)
    silence.stop()
    clearTimeout(whole)
  })
}

/** RFC 9110 section 6.4.1: statuses of answers without content. */
const withoutContent = new Set([204, 205, 304])

function toAnswer(response: IncomingMessage, { method, cut }: UpstreamRequest, watch: Watch): UpstreamAnswer {
  const { statusCode: status = 0, headersDistinct: headers } = response
  if (method !== 'HEAD' && !withoutContent.has(status)) {
    return { status, headers, body: toStream(response, cut, watch) }
  }
  response.on('error', () => {}).resume()
  return { status, headers, body: null }
}

/**
 * Converts the answer's body to a stream that is read no faster than the buyer takes it.
 *
 * It doesn't use `Readable.toWeb`, whose reader may wait for a slow buyer and would learn of an error only after that.
 */
function toStream(response: IncomingMessage, cut: () => void, watch: Watch): ReadableStream<Uint8Array> {
  const chunks = response[Symbol.asyncIterator]()
  let isCancelled = false
  response.once('close', () => {
    if (!response.readableEnded && !isCancelled) cut()
  })
  return new ReadableStream({
    async pull(controller) {
      const chunk = await chunks.next().catch((error: unknown) => void controller.error(error))
      if (chunk === undefined) return
      watch.moved()
      if (chunk.done) controller.close()
      else controller.enqueue(chunk.value)
    },
    cancel() {
      isCancelled = true
      response.destroy()
    },
  })
}

function toRefusal(error: unknown): Refusal {
  if (error instanceof Refusal) return error
  const { code, name } = error as NodeJS.ErrnoException
  // Leaves out the error's message, because it contains an address that may be confidential.
  return new Refusal('upstream_failed', `The upstream could not be called: ${code ?? name}`, { cause: error })
}
