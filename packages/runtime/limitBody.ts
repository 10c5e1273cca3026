import { BaseError } from '@tollkeeper/sdk/protocol/errors'
import type { MiddlewareHandler } from 'hono'
import { bodyLimit } from 'hono/body-limit'

/**
 * Rejects compressed bodies, and bodies over `maxBytes` without reading the rest.
 *
 * If a request has a Content-Length, Node's parser enforces that length, so checking the number is enough. For other requests, use hono's own limit,
 * which counts the bytes. It isn't used for all requests, because it converts the request to a web stream, which takes more CPU time than verifying a
 * signature.
 */
export function limitBody(maxBytes: number): MiddlewareHandler {
  const refuse = () => {
    throw new BaseError('payload_too_large', `A body can have at most ${maxBytes} bytes`)
  }
  const countWhileReading = bodyLimit({ maxSize: maxBytes, onError: refuse })

  return async (c, next) => {
    const { method } = c.req
    if (method === 'GET' || method === 'HEAD' || method === 'OPTIONS') return next()
    const encoding = c.req.header('content-encoding')
    if (encoding !== undefined && encoding.trim().toLowerCase() !== 'identity')
      throw new BaseError(
        'unsupported_media_type',
        'A compressed body is not read here: send it without Content-Encoding',
      )
    const length = c.req.header('content-length')
    if (length === undefined || c.req.header('transfer-encoding') !== undefined)
      return countWhileReading(c, next)
    if (Number(length) > maxBytes) refuse()
    return next()
  }
}
