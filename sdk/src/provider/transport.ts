import { LeavingRedirect, withinOrigin } from '../client/redirects.ts'
import { isRecord, parseJson, parseUrl } from '../protocol/fields.ts'
import { startClock, waitFor } from './clock.ts'
import { GatewayError, toGatewayError } from './errors.ts'
import { readJsonLines } from './jsonLines.ts'
import { createList, type List, type PageShape } from './list.ts'
import { mayRepeat, readRetryAfter, retryDelayMs } from './retries.ts'

/** How a client connects to its gateway. */
export type TransportOptions = {
  /** The gateway's URL. */
  gatewayUrl: string
  /** The API key, sent as `Authorization: Bearer` only to the gateway's own origin. */
  apiKey?: string | undefined
  /** Timeout in ms of a call, including its retries. For a download, the response must start within this time. Default 30,000. */
  timeout?: number
  /** Maximum number of retries of a call. Default 2. */
  maxRetries?: number
  /** The `fetch` to use. Default: the global `fetch`. */
  fetch?: typeof globalThis.fetch
}

/** Options of every method. They are the last argument. */
export type RequestOptions = {
  /** Aborts the call, which then throws the signal's reason. */
  signal?: AbortSignal | undefined
  /** Timeout in ms. Default: the client's. */
  timeout?: number | undefined
  /** Maximum number of retries. Default: the client's. */
  maxRetries?: number | undefined
}

/** Options of methods that change a resource with versions. */
export type ChangeOptions = RequestOptions & {
  /**
   * The `version` that you have read. If there is a newer version, the change is rejected with `precondition_failed`. `*` changes any version.
   */
  ifMatch: number | '*'
}

/** A call of the gateway's API. */
export type Call = {
  method: 'GET' | 'POST' | 'PUT' | 'PATCH' | 'DELETE'
  /** Path relative to the gateway's URL, with a leading slash. */
  path: string
  /** Undefined values are omitted. A date is sent in UTC. */
  query?: object | undefined
  /** The body, sent as JSON. */
  body?: unknown
  headers?: Readonly<Record<string, string>>
  /** Whether sending the call twice has the same effect as sending it once. Default: depends on the method (RFC 9110 9.2.2). */
  isRepeatable?: boolean
  options?: (RequestOptions & Partial<ChangeOptions>) | undefined
}

/** Sends calls. It has one method for each kind of response of the gateway. */
export type Transport = {
  json<T>(call: Call): Promise<T>
  nothing(call: Call): Promise<void>
  /** Returns the response. The caller reads the body. */
  file(call: Call): Promise<Response>
  list<Item, Page>(call: Call, shape: PageShape<Item, Page>): List<Item, Page>
  /** Reads JSON Lines. If the connection breaks, continues after the last complete line. */
  lines<Line extends { cursor: string }>(call: Call): AsyncIterable<Line>
}

type Read<T> = (response: Response, name: string) => Promise<T>

export function createTransport({
  gatewayUrl,
  apiKey,
  timeout = 30_000,
  maxRetries = 2,
  fetch = globalThis.fetch,
}: TransportOptions): Transport {
  const base = parseUrl(gatewayUrl)
  if (!base || !/^https?:$/.test(base.protocol) || base.username + base.password !== '')
    throw new TypeError('gatewayUrl: expected the http(s) URL of a gateway, without a user name')
  const prefix = `${base.origin}${base.pathname.replace(/\/+$/, '')}`
  const fetchWithin = withinOrigin(fetch)

  function send(
    { method, path, query, body, headers, options }: Call,
    signal: AbortSignal,
  ): Promise<Response> {
    return fetchWithin(`${prefix}${path}${writeQuery(query)}`, {
      method,
      headers: {
        ...(body !== undefined && { 'content-type': 'application/json' }),
        ...(apiKey && { authorization: `Bearer ${apiKey}` }),
        ...(options?.ifMatch !== undefined && { 'if-match': writeVersion(options.ifMatch) }),
        ...headers,
      },
      ...(body !== undefined && { body: JSON.stringify(body) }),
      signal,
    })
  }

  /** Sends a call. Sends it again if a retry can succeed and does no harm. */
  async function call<T>(asked: Call, read: Read<T>, isRead = true): Promise<T> {
    const { method, path, options = {} } = asked
    const name = `${method} ${path}`
    const isRepeatable = asked.isRepeatable ?? (method !== 'POST' && method !== 'PATCH')
    const most = options.maxRetries ?? maxRetries
    const timeoutMs = options.timeout ?? timeout
    const clock = startClock(timeoutMs, options.signal)
    let isOver = false
    try {
      for (let attempt = 0; ; attempt++) {
        try {
          const value = await readAnswer(await send(asked, clock.signal), name, read)
          isOver = true
          return value
        } catch (thrown) {
          if (clock.signal.aborted) throw thrown
          const error = toNetworkError(name, thrown)
          const waitMs = retryDelayMs(attempt, error, Math.random())
          // If too little time is left for another attempt, throw the error immediately, not at the timeout.
          if (attempt >= most || !mayRepeat(error, isRepeatable) || waitMs >= clock.leftMs()) throw error
          await clock.wait(waitMs)
        }
      }
    } catch (error) {
      if (options.signal?.aborted) throw options.signal.reason
      if (clock.signal.aborted)
        throw new GatewayError('timeout', `${name}: no response within ${timeoutMs} ms`, { cause: error })
      throw error
    } finally {
      clock.stop(isRead || !isOver)
    }
  }

  function json<T>(asked: Call): Promise<T> {
    return call(asked, readJson<T>)
  }

  function file(asked: Call): Promise<Response> {
    return call(asked, async (response) => response, false)
  }

  async function* lines<Line extends { cursor: string }>(asked: Call): AsyncGenerator<Line, void, undefined> {
    const { signal, maxRetries: most = maxRetries } = asked.options ?? {}
    let cursor: string | undefined
    for (let failures = 0; ; ) {
      const response = await file(cursor === undefined ? asked : at(asked, 'cursor', cursor))
      try {
        for await (const line of readJsonLines<Line>(response)) {
          cursor = line.cursor
          failures = 0
          yield line
        }
        return
      } catch (error) {
        if (signal?.aborted) throw signal.reason
        const lost = toNetworkError(`${asked.method} ${asked.path}`, error)
        if (failures >= most) throw lost
        await waitFor(retryDelayMs(failures++, lost, Math.random()), signal)
      }
    }
  }

  return {
    json,
    file,
    lines,
    nothing: (asked) => call(asked, async (response) => void (await response.text())),
    list: <Item, Page>(asked: Call, shape: PageShape<Item, Page>) =>
      createList<Item, Page>(shape, (cursor) =>
        json(cursor === undefined ? asked : at(asked, shape.position, cursor)),
      ),
  }
}

/** Returns a copy of the call that starts at another position of its list. */
function at(asked: Call, position: 'cursor' | 'offset', cursor: string): Call {
  return { ...asked, query: { ...asked.query, [position]: cursor } }
}

function writeQuery(query: object = {}): string {
  const given = Object.entries(query).filter(([, value]) => value !== undefined && value !== null)
  if (given.length === 0) return ''
  const pairs = given.map(([name, value]) => [
    name,
    value instanceof Date ? value.toISOString() : String(value),
  ])
  return `?${new URLSearchParams(pairs)}`
}

function writeVersion(version: number | '*'): string {
  return version === '*' ? version : `"${version}"`
}

async function readAnswer<T>(response: Response, name: string, read: Read<T>): Promise<T> {
  if (response.ok) return read(response, name)
  const { status, headers } = response
  const retryAfterSeconds = readRetryAfter(headers.get('retry-after'), Date.now())
  throw toGatewayError(name, { status, retryAfterSeconds }, parseJson(await response.text()))
}

async function readJson<T>(response: Response, name: string): Promise<T> {
  const answer = parseJson(await response.text())
  if (isRecord(answer)) return answer as T
  const { status } = response
  throw new GatewayError('http_error', `${name} answered ${status} without JSON: is gatewayUrl right?`, {
    status,
  })
}

/** Returns the error of a call that got no complete response. Doesn't change a {@link GatewayError}. */
function toNetworkError(name: string, thrown: unknown): GatewayError {
  if (thrown instanceof GatewayError) return thrown
  if (thrown instanceof LeavingRedirect)
    return new GatewayError(
      'gateway_redirects',
      `${name}: ${thrown.message}, but the API key is sent only to the gateway. Set gatewayUrl to the new address`,
      { cause: thrown },
    )
  // A failed `fetch` has only the message "fetch failed".
  const { message = 'connection failed', cause } = thrown instanceof Error ? thrown : {}
  const reason = cause instanceof Error && cause.message !== '' ? cause.message : message
  return new GatewayError('network_error', `${name}: ${reason}`, { cause: thrown })
}
