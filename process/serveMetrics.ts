import { hash, timingSafeEqual } from 'node:crypto'
import type { Handler } from 'hono'
import type { Registry } from 'prom-client'
import { BaseError } from '#protocol/errors'

export type ServeMetricsOptions = {
  registry: Registry
  /** What Prometheus presents; null: anyone may read them. */
  token: string | null
}

/** `GET /metrics` for Prometheus; with `METRICS_TOKEN`, only for who presents it. */
export function serveMetrics({ registry, token }: ServeMetricsOptions): Handler {
  return async (c) => {
    if (token !== null && !isEqual(c.req.header('authorization') ?? '', `Bearer ${token}`)) {
      throw new BaseError('unauthorized', 'This needs METRICS_TOKEN as a bearer token')
    }
    return c.body(await registry.metrics(), 200, { 'content-type': registry.contentType })
  }
}

function isEqual(a: string, b: string): boolean {
  return timingSafeEqual(hash('sha256', a, 'buffer'), hash('sha256', b, 'buffer'))
}
