import type { MiddlewareHandler } from 'hono'

/**
 * What every answer of ours says, unless its route says otherwise: keep it nowhere, for it may hold a key, a challenge or
 * a receipt, and take it for nothing but what its Content-Type says. And every 503 says when to try again.
 */
export const responseHeaders: MiddlewareHandler = async (c, next) => {
  c.header('Cache-Control', 'no-store')
  c.header('X-Content-Type-Options', 'nosniff')
  await next()
  if (c.res.status === 503 && !c.res.headers.has('Retry-After')) c.header('Retry-After', '1')
}
