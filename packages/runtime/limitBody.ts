import { BaseError } from '@tollkeeper/sdk/protocol/errors'
import type { MiddlewareHandler } from 'hono'
import { bodyLimit } from 'hono/body-limit'

/**
 * Refuses bodies over `maxBytes`, without reading further, and compressed ones.
 *
 * If there is a Content-Length, Node's parser holds the client to it, so checking that number suffices. Without one,
 * hono's own limit counts while it reads; that turns a request into a web stream, which costs more than
 * verifying a signature.
 */
export function limitBody(maxBytes: number): MiddlewareHandler {
  const refuse = () => {
    throw new BaseError('payload_too_large', `A body has at most ${maxBytes} bytes`)
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
