import { type IncomingHttpHeaders, request as requestHttp } from 'node:http'
import { request as requestHttps } from 'node:https'
import { type AddressGuard, AddressRefusedError } from './addressGuard.ts'

export type SendOptions = {
  url: string
  headers: Record<string, string>
  /** Default: POST, the only method that sends the body. */
  method?: 'GET' | 'POST' | 'HEAD' | 'OPTIONS'
  body: string
  guard: AddressGuard
  /** Timeout in ms of the whole request and response. */
  timeoutMs: number
  /** Maximum number of bytes of the response's body to read. The rest is not waited for. */
  maxResponseBytes?: number
}

/** The result of one request. If there is no HTTP status, the receiver may still have got the request. */
export type SendResult =
  | {
      status: 'answered'
      httpStatus: number
      retryAfterMs: number
      headers: IncomingHttpHeaders
      body: string
      /** Whether the body is longer than the part that was read. */
      isCut: boolean
    }
  | {
      status: 'unanswered'
      /** `not_sent`: the request wasn't sent, because of an error in this process. */
      failure: 'address_refused' | 'timeout' | 'connection_failed' | 'not_sent'
      detail: string
      /** Node's error code, such as `ECONNREFUSED`; '' if there is none. */
      code: string
    }

/**
 * Sends a request, usually a POST, to a URL that a stranger chose. Never throws.
 *
 * It uses Node's own client rather than fetch, because Node's client doesn't follow redirects and accepts a `lookup` that pins
 * the address. Each request uses a separate connection, so that the address is checked for each request.
 */
export function send(options: SendOptions): Promise<SendResult> {
  const { headers, method = 'POST', body, guard, timeoutMs, maxResponseBytes = 16_384 } = options
  return new Promise((resolve) => {
    const unanswered = (error: NodeJS.ErrnoException) =>
      resolve({
        status: 'unanswered',
        failure: failureOf(error),
        detail: error.message.slice(0, 500),
        code: error.code ?? '',
      })
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
      // Once the status has arrived, the request counts as answered, even if the body breaks off or never ends.
      const answered = () => {
        resolve({
          status: 'answered',
          httpStatus: response.statusCode ?? 0,
          retryAfterMs: parseRetryAfter(response.headers['retry-after']),
          headers: response.headers,
          body: Buffer.concat(chunks).subarray(0, maxResponseBytes).toString('utf8'),
          isCut: size > maxResponseBytes,
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

// Reads a Retry-After in seconds (RFC 9110 section 10.2.3). Returns 0 for a date: the caller's own schedule then decides.
function parseRetryAfter(value: string | undefined): number {
  return value !== undefined && /^\d{1,9}$/.test(value) ? Number(value) * 1000 : 0
}
