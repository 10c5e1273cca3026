import type { MiddlewareHandler } from 'hono'
import { cors } from 'hono/cors'

/**
 * Lets pages of any origin call routes and read their responses. That is safe because no route uses cookies.
 *
 * Only preflight requests go to hono's own middleware. That middleware creates a response for every request before the route does,
 * which takes more time than creating a challenge's macaroon.
 *
 * @param exposed whether a page may read all headers of a response, not only the default ones.
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
