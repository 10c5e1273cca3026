import type { MiddlewareHandler } from 'hono'

/**
 * What every answer of ours says, unless its route says otherwise: keep it nowhere, for it may hold a key, a challenge or
 * a receipt, and take it for nothing but what its Content-Type says.
 */
export const responseHeaders: MiddlewareHandler = (c, next) => {
  c.header('Cache-Control', 'no-store')
  c.header('X-Content-Type-Options', 'nosniff')
  return next() as Promise<undefined>
}
