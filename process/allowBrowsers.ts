import type { MiddlewareHandler } from 'hono'
import { cors } from 'hono/cors'

const preflight = cors({ origin: '*', allowMethods: ['GET', 'POST'], maxAge: 86_400 })

/**
 * What anyone may read from a browser. Nothing behind it looks at cookies, so any origin may.
 *
 * Only preflights go to hono's own middleware: it touches each response before there is one, which costs a challenge
 * more than its macaroon.
 */
export const allowBrowsers: MiddlewareHandler = (c, next) => {
  if (c.req.method === 'OPTIONS') return preflight(c, next)
  c.header('Access-Control-Allow-Origin', '*')
  return next() as Promise<undefined>
}
