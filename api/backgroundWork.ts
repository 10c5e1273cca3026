import { warmSessions } from '#ledger/acceptance'
import { idleSeconds } from '#ledger/database'
import { createRetention } from '#ledger/retention'
import { type Loop, repeat } from '#process/repeat'
import type { AppOptions } from './app.ts'
import { createAddressGuard } from './http/addressGuard.ts'
import { collectApiState, createApiMetrics } from './metrics.ts'
import { createMailer } from './portal/mail/mailer.ts'
import { createMailLoop } from './portal/mail/mailLoop.ts'
import { startSummaries } from './portal/revenue/summarise.ts'
import { createUsageCounters } from './portal/usage/usageCounters.ts'
import { createDeliveryLoop } from './portal/webhooks/deliveryLoop.ts'

export type BackgroundWork = {
  /** What the app shares with it. */
  shared: Required<Pick<AppOptions, 'addressGuard' | 'mailer' | 'usage' | 'metrics' | 'loops'>>
  /** Takes up nothing new, and waits for what is under way. */
  close(): Promise<void>
}

/** Before they are closed for resting: the first payments in a new session take 50 ms. */
const warmEveryMs = (idleSeconds * 1_000) / 2

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
  const usage = createUsageCounters({ sql })
  const loops: Loop[] = [
    startSummaries({ sql, log, onError: failed('summaries') }),
    repeat({
      name: 'usage',
      everyMs: 5_000,
      step: usage.flush,
      onError(error) {
        log.warn({ err: error }, 'usage can not be written for now')
        failed('usage')()
      },
    }),
    repeat({
      name: 'sessions',
      everyMs: warmEveryMs,
      step: () => warmSessions(sql),
      onError: failed('sessions'),
    }),
    repeat({
      name: 'retention',
      everyMs: 5_000,
      step: createRetention(sql, { days: settings.retentionDays, now: Date.now }),
      onError(error) {
        log.warn({ err: error }, 'what is long over can not be deleted for now')
        failed('retention')()
      },
    }),
  ]
  const deliveries = createDeliveryLoop({
    sql,
    guard: addressGuard,
    log,
    onAttempt: (outcome) => metrics.webhookAttempts.inc({ outcome }),
    onError: failed('webhooks'),
  })
  loops.push(deliveries.start())

  const mailer = settings.mail && createMailer(settings.mail)
  if (mailer !== null) {
    const mail = createMailLoop({
      sql,
      mailer,
      issuer: settings.issuer,
      log,
      onAttempt: (outcome) => metrics.mails.inc({ outcome }),
      onError: failed('mail'),
    })
    loops.push(mail.start())
  }

  return {
    shared: { addressGuard, mailer, usage, metrics, loops },
    async close() {
      await Promise.all([deliveries.close(), ...loops.map((loop) => loop.stop())])
      await usage.flush().catch(() => {})
    },
  }
}
