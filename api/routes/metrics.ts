import { hash, timingSafeEqual } from 'node:crypto'
import type { App } from '../app.ts'
import type { ApiMetrics } from '../metrics.ts'
import { Refusal } from '../refusal.ts'
import type { GatewaySettings } from '../settings.ts'

export type MetricsRouteOptions = { metrics: ApiMetrics; settings: Pick<GatewaySettings, 'metricsToken'> }

/** `GET /metrics` for Prometheus; with `METRICS_TOKEN`, only for who presents it. */
export function addMetricsRoute(app: App, { metrics, settings }: MetricsRouteOptions): void {
  const { metricsToken } = settings
  app.get('/metrics', async (c) => {
    if (metricsToken !== null && !isEqual(c.req.header('authorization') ?? '', `Bearer ${metricsToken}`)) {
      throw new Refusal('unauthorized', 'This needs METRICS_TOKEN as a bearer token')
    }
    return c.body(await metrics.registry.metrics(), 200, { 'content-type': metrics.registry.contentType })
  })
}

function isEqual(a: string, b: string): boolean {
  return timingSafeEqual(hash('sha256', a, 'buffer'), hash('sha256', b, 'buffer'))
}
