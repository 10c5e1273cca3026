import type { MiddlewareHandler } from 'hono'

/**
 * Headers of every answer, unless its route sets others: caches must not keep it, since it may hold a key, a challenge or
 * a receipt, and nobody may guess its type. Every 503 says when to try again.
 */
export const responseHeaders: MiddlewareHandler = async (c, next) => {
  c.header('Cache-Control', 'no-store')
  c.header('X-Content-Type-Options', 'nosniff')
  await next()
  if (c.res.status === 503 && !c.res.headers.has('Retry-After')) c.header('Retry-After', '1')
}
