import { type IncomingHttpHeaders, request as requestHttp } from 'node:http'
import { request as requestHttps } from 'node:https'
import { type AddressGuard, AddressRefusedError } from '../http/addressGuard.ts'

export type SendOptions = {
  url: string
  headers: Record<string, string>
  /** Default: POST. */
  method?: 'GET' | 'POST'
  body: string
  guard: AddressGuard
  /** Milliseconds for the whole exchange. */
  timeoutMs: number
  /** Most bytes of the response's body that are read; the rest is not waited for. */
  maxResponseBytes?: number
}

/** The result of one sending. Without a status, nobody knows whether the receiver got it. */
export type SendResult =
  | {
      status: 'answered'
      httpStatus: number
      retryAfterMs: number
      headers: IncomingHttpHeaders
      body: string
    }
  | {
      status: 'unanswered'
      /** `not_sent`: by our own fault. */
      failure: 'address_refused' | 'timeout' | 'connection_failed' | 'not_sent'
      detail: string
    }

/**
 * Sends to a URL that a stranger chose, by POST as a rule. Never throws.
 *
 * It uses Node's own client rather than fetch, because it follows no redirect and takes a `lookup` that pins the address. Each
 * request has a connection of its own, so that none goes to an address that was checked long ago.
 */
export function send(options: SendOptions): Promise<SendResult> {
  const { headers, method = 'POST', body, guard, timeoutMs, maxResponseBytes = 16_384 } = options
  return new Promise((resolve) => {
    const unanswered = (error: Error) =>
      resolve({ status: 'unanswered', failure: failureOf(error), detail: error.message.slice(0, 500) })
    let url: URL
    try {
      url = new URL(options.url)
      guard.checkLiteral(url)
    } catch (error) {
      return unanswered(error as Error)
    }
    const request = (url.protocol === 'https:' ? requestHttps : requestHttp)(url, {
      method,
      headers: { ...headers, ...(method === 'POST' && { 'content-length': Buffer.byteLength(body) }) },
      agent: false,
      lookup: guard.lookup,
      signal: AbortSignal.timeout(timeoutMs),
    })
    request.on('error', unanswered)
    request.on('response', (response) => {
      const chunks: Buffer[] = []
      let size = 0
      // The status is the answer, and a body that never ends doesn't change it.
      const answered = () => {
        resolve({
          status: 'answered',
          httpStatus: response.statusCode ?? 0,
          retryAfterMs: parseRetryAfter(response.headers['retry-after']),
          headers: response.headers,
          body: Buffer.concat(chunks).subarray(0, maxResponseBytes).toString('utf8'),
        })
        request.destroy()
      }
      response.on('data', (chunk: Buffer) => {
        chunks.push(chunk)
        size += chunk.length
        if (size >= maxResponseBytes) answered()
      })
      response.on('end', answered)
      response.on('error', answered)
      request.off('error', unanswered).on('error', answered)
    })
    request.end(method === 'POST' ? body : undefined)
  })
}

function failureOf(error: Error): 'address_refused' | 'timeout' | 'connection_failed' {
  if (error instanceof AddressRefusedError || error.cause instanceof AddressRefusedError)
    return 'address_refused'
  return error.name === 'AbortError' || error.name === 'TimeoutError' ? 'timeout' : 'connection_failed'
}

// RFC 9110 section 10.2.3. A date counts as "soon", and our own schedule decides.
function parseRetryAfter(value: string | undefined): number {
  return value !== undefined && /^\d{1,9}$/.test(value) ? Number(value) * 1000 : 0
}
