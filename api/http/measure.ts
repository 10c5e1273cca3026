import type { MiddlewareHandler } from 'hono'
import { matchedRoutes } from 'hono/route'
import type { ApiMetrics } from './metrics.ts'

type Series = { observe(seconds: number): void }

/** Measures the time of each request. The series has the route rather than the path as its label, because paths contain ids. */
export function measure({ requests }: ApiMetrics): MiddlewareHandler {
  // Finding a series by its labels takes longer than adding a value to it, so the series are cached, one for each route and status.
  const known = new Map<string, Series>()

  return async (c, next) => {
    const began = performance.now()
    await next()
    const { method } = c.req
    const route = matchedRoutes(c).findLast(({ path }) => !path.endsWith('*'))?.path ?? 'none'
    const status = String(c.res.status)
    const key = `${method} ${route} ${status}`
    let series = known.get(key)
    if (series === undefined) {
      series = requests.labels({ method, route, status })
      known.set(key, series)
    }
    series.observe((performance.now() - began) / 1000)
  }
}
