import type { MiddlewareHandler } from 'hono'
import { cors } from 'hono/cors'

/**
 * Lets pages of any origin call and read. Nothing behind it looks at cookies, so any origin may.
 *
 * Only preflights go to hono's own middleware: it touches each response before there is one, which costs a challenge
 * more than its macaroon.
 *
 * @param exposed whether a page may read all headers of an answer, not only those that any page may.
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
