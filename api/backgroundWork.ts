import type { AppOptions } from './app.ts'
import { collectApiState, createApiMetrics } from './metrics.ts'
import { createSummaryLoop } from './portal/revenue/summarise.ts'
import { createUsageCounters } from './portal/usage/usageCounters.ts'
import { createAddressGuard } from './portal/webhooks/addressGuard.ts'
import { createDeliveryLoop } from './portal/webhooks/deliveryLoop.ts'

export type BackgroundWork = {
  /** What the app shares with it. */
  shared: Required<Pick<AppOptions, 'addressGuard' | 'usage' | 'metrics'>>
  /** Takes up nothing new, and waits for what is under way. */
  close(): Promise<void>
}

/** Starts what an api process does beside answering: webhooks, the providers' sums, counters. */
export function startBackgroundWork({
  sql,
  networks,
  settings,
  log,
}: Pick<AppOptions, 'sql' | 'networks' | 'settings' | 'log'>): BackgroundWork {
  const metrics = createApiMetrics()
  collectApiState(metrics, { sql, networks: networks.map(({ network }) => network) })
  const failed = (loop: string) => () => metrics.backgroundErrors.inc({ loop })

  const addressGuard = createAddressGuard({ allowPrivate: settings.webhookAllowPrivate })
  const usage = createUsageCounters({ sql, log, onError: failed('usage') })
  const summaries = createSummaryLoop({ sql, log, onError: failed('summaries') })
  const deliveries = createDeliveryLoop({
    sql,
    guard: addressGuard,
    log,
    onAttempt: (outcome) => metrics.webhookAttempts.inc({ outcome }),
    onError: failed('webhooks'),
  })
  usage.start()
  summaries.start()
  deliveries.start()

  return {
    shared: { addressGuard, usage, metrics },
    async close() {
      await Promise.all([usage.close(), summaries.close(), deliveries.close()])
    },
  }
}
