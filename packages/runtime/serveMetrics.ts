import { BaseError } from '@tollkeeper/sdk/protocol/errors'
import type { Handler } from 'hono'
import type { Registry } from 'prom-client'
import { clientAddress } from './clientAddress.ts'
import { isSameSecret } from './isSameSecret.ts'
import type { RateLimiter } from './rateLimiter.ts'

export type ServeMetricsOptions = {
  registry: Registry
  /** The token that Prometheus sends; null: anyone may read the metrics. */
  token: string | null
  /** Limits the number of reads without the token. Null: no limit. */
  rateLimiter: RateLimiter | null
  trustedProxies: number
}

/**
 * Maximum number of reads per minute from one address without the token. A read takes 30 ms, and a scraper reads every few
 * seconds.
 */
const mostReadings = 120

/**
 * Serves `GET /metrics` for Prometheus. If `METRICS_TOKEN` is set, only requests with that token are served. The number of requests
 * without the token is limited for each address.
 */
export function serveMetrics({ registry, token, rateLimiter, trustedProxies }: ServeMetricsOptions): Handler {
  return async (c) => {
    if (token === null || !isSameSecret(c.req.header('authorization') ?? '', `Bearer ${token}`)) {
      if (rateLimiter) countReading(rateLimiter, clientAddress(c, trustedProxies))
      if (token !== null) throw new BaseError('unauthorized', 'METRICS_TOKEN is required as a bearer token')
    }
    return c.body(await registry.metrics(), 200, { 'content-type': registry.contentType })
  }
}

function countReading(rateLimiter: RateLimiter, address: string): void {
  const { isAllowed, limit, resetSeconds } = rateLimiter.count(`metrics:${address}`, mostReadings)
  if (isAllowed) return
  const details = { retryAfter: resetSeconds }
  throw new BaseError('rate_limited', `At most ${limit} reads per minute`, { details })
}
