import type { MiddlewareHandler } from 'hono'
import { cors } from 'hono/cors'

/**
 * Lets pages of any origin call and read. That is safe, since nothing behind it looks at cookies.
 *
 * Only preflights go to hono's own middleware, which touches each response before there is one: for a challenge that costs
 * more than its macaroon.
 *
 * @param exposed whether a page may read all headers of an answer, not only the default ones.
 */
export function allowBrowsers(allowMethods: string[], exposed = false): MiddlewareHandler {
  const preflight = cors({ origin: '*', allowMethods, maxAge: 86_400 })
  return (c, next) => {
    if (c.req.method === 'OPTIONS') return preflight(c, next)
    c.header('Access-Control-Allow-Origin', '*')
    if (exposed) c.header('Access-Control-Expose-Headers', '*')
    return next() as Promise<undefined>
  }
}
