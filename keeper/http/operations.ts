import { createFailureLog } from '@tollkeeper/runtime/failureLog'
import type { Readiness } from '@tollkeeper/runtime/health'
import type { Logger } from '@tollkeeper/runtime/log'
import { answerProblem, toCodedError } from '@tollkeeper/runtime/problem'
import type { RateLimiter } from '@tollkeeper/runtime/rateLimiter'
import { responseHeaders } from '@tollkeeper/runtime/responseHeaders'
import { serveMetrics } from '@tollkeeper/runtime/serveMetrics'
import { BaseError } from '@tollkeeper/sdk/protocol/errors'
import { Hono } from 'hono'
import type { Metrics } from '../settings/metrics.ts'
import { withoutKey } from './keyPath.ts'

export type OperationsOptions = {
  readiness: () => Promise<Readiness>
  metrics: Metrics
  /** The token that Prometheus sends to read the metrics; null if anyone may read them. */
  metricsToken: string | null
  /** Limits reads of the metrics without the token. */
  rateLimiter: RateLimiter
  /** Number of proxies in front of this server whose `X-Forwarded-For` entries are trusted. */
  trustedProxies: number
  log: Logger
}

/** Creates the routes for operators and their probes, which every keeper has, with or without a database. */
export function createOperationsApp({
  readiness,
  metrics,
  metricsToken,
  log,
  ...limiting
}: OperationsOptions): Hono {
  const app = new Hono()
  const logFailure = createFailureLog(log)
  app.use(responseHeaders)
  app.onError((error, c) => {
    const coded = toCodedError(error)
    logFailure(coded, { method: c.req.method, path: withoutKey(c.req.path) })
    return answerProblem(c, coded)
  })
  app.notFound((c) => answerProblem(c, new BaseError('not_found')))

  app.get('/healthz', (c) => c.json({ status: 'ok' }))
  app.get('/readyz', async (c) => {
    const body = await readiness()
    return c.json(body, body.status === 'unavailable' ? 503 : 200)
  })
  app.get('/metrics', serveMetrics({ ...limiting, registry: metrics.registry, token: metricsToken }))
  return app
}
