import type { MiddlewareHandler } from 'hono'
import { matchedRoutes } from 'hono/route'
import type { ApiMetrics } from '../metrics.ts'

/** Times every request, by route, never by path: paths hold ids. */
export function measure({ requests }: ApiMetrics): MiddlewareHandler {
  return async (c, next) => {
    const end = requests.startTimer({ method: c.req.method })
    await next()
    const route = matchedRoutes(c).findLast(({ path }) => !path.endsWith('*'))?.path ?? 'none'
    end({ route, status: String(c.res.status) })
  }
}
