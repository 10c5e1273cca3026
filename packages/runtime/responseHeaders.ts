import type { MiddlewareHandler } from 'hono'

/**
 * Sets headers that each response has by default. Caches must not store a response, because it may contain a key, a challenge or a
 * receipt. Clients must not guess its type. Every 503 gets a Retry-After.
 */
export const responseHeaders: MiddlewareHandler = async (c, next) => {
  c.header('Cache-Control', 'no-store')
  c.header('X-Content-Type-Options', 'nosniff')
  await next()
  if (c.res.status === 503 && !c.res.headers.has('Retry-After')) c.header('Retry-After', '1')
}
