import {
  type ClientRequest,
  Agent as HttpAgent,
  type IncomingMessage,
  request as requestHttp,
} from 'node:http'
import { Agent as HttpsAgent, request as requestHttps } from 'node:https'
import type { Readable } from 'node:stream'
import type { AddressGuard } from '../../http/addressGuard.ts'
import { Refusal } from '../../http/refusal.ts'
import type { UpstreamSettings } from '../../http/settings.ts'

/** Limits for every upstream. An answer may take a minute to begin, and may pause for a minute: models think. */
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
  /** Reads the body, which has arrived whole before; null: there is none. */
  body: (() => Readable) | null
  /** Cuts the buyer's connection if the upstream breaks off, because a partial answer must not look whole. */
  cut: () => void
}

export type UpstreamAnswer = {
  status: number
  headers: NodeJS.Dict<string[]>
  body: ReadableStream<Uint8Array> | null
}

export type Forward = {
  /** @throws {Refusal} `upstream_busy` if the provider has its most requests under way. */
  requireRoom(providerId: string): void
  /**
   * Passes a request on. It waits for the head of the answer only; the body moves as fast as the buyer takes it.
   *
   * @throws {Refusal} `upstream_failed`, `upstream_timeout`, `upstream_busy`
   */
  send(request: UpstreamRequest): Promise<UpstreamAnswer>
}

/**
 * Calls providers' servers.
 *
 * It uses Node's own client rather than fetch, for the reasons of api/telling/send.ts, and because fetch decompresses
 * what should pass unchanged.
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
    // A repeat gets a connection of its own, because one of the pool may just be closing. So only safe requests are pooled.
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
      // For example after 101, which nobody asked for: it closes without an error.
      outgoing.once('close', () => reject(new Error('The connection was closed')))
      outgoing.on('response', (response) => {
        watch.allow(settings.idleTimeoutMs)
        if (body) limitUpload(body, outgoing, settings)
        // The answer may end before the request is whole; then nobody waits for the rest.
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

/** The upstream closed a connection of the pool just when it was used again (RFC 9112 section 9.3.1). */
class Stale extends Error {
  constructor(cause: Error) {
    super(cause.message, { cause })
  }
}

function isReset(error: NodeJS.ErrnoException): boolean {
  return error.code === 'ECONNRESET' || error.code === 'EPIPE'
}

/** Ends something in which nothing has moved for too long. */
type Watch = {
  /** How long nothing may move from now on. */
  allow(ms: number): void
  /** Something has moved. */
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

/** Sends a request's body, and notes whenever the upstream has taken what it was given. */
function upload(body: Readable, outgoing: ClientRequest, watch: Watch): void {
  // A failure ends the request, which reports it.
  body.once('error', (error) => outgoing.destroy(error))
  outgoing.once('close', () => body.destroy())
  outgoing.on('drain', watch.moved).once('finish', watch.moved)
  body.pipe(outgoing)
}

/**
 * Stops reading a request's body, which takes space, if the upstream doesn't take it although it has begun to answer. The answer goes on:
 * it may not need the body, and its parts keep the exchange alive, but not the body.
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
 * The answer's body, read no faster than it is taken.
 *
 * It isn't `Readable.toWeb`, whose reader may wait for a slow buyer and wouldn't hear of an error until then.
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
  // Without its message, which names an address that may be nobody's business.
  return new Refusal('upstream_failed', `The upstream could not be called: ${code ?? name}`, { cause: error })
}
