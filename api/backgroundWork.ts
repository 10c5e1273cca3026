import { finalityOf } from '@tollkeeper/chain/finality'
import type { ServedNetwork } from '@tollkeeper/chain/servedNetworks'
import { warmSessions } from '@tollkeeper/ledger/acceptance/acceptance'
import { readRecordAge } from '@tollkeeper/ledger/facts/record'
import { readRecordState } from '@tollkeeper/ledger/facts/recordState'
import { createRecorder } from '@tollkeeper/ledger/outcomes/recorder'
import { createRetention } from '@tollkeeper/ledger/outcomes/retention'
import { type Database, idleSeconds } from '@tollkeeper/ledger/store/database'
import { onOnePostgres, type TabDatabase } from '@tollkeeper/ledger/tabs/tabDatabase'
import { closingTimes, createTabUpkeep } from '@tollkeeper/ledger/tabs/upkeep'
import type { Logger } from '@tollkeeper/runtime/log'
import { type Loop, repeat } from '@tollkeeper/runtime/repeat'
import { logBadRow, type OnBadRow, takeParts } from '@tollkeeper/runtime/stepBack'
import type { AppOptions } from './app.ts'
import { createAddressGuard } from './http/addressGuard.ts'
import { createApiMetrics } from './http/metrics.ts'
import { createOriginChecks } from './registry/originChecks.ts'
import { collectApiState } from './stateMetrics.ts'
import { createDeliveryLoop } from './telling/deliveryLoop.ts'
import { createMailer } from './telling/mailer.ts'
import { createUsageCounters } from './views/usageCounters.ts'

export type BackgroundWork = {
  /** The parts that the app shares with it. */
  shared: Required<Pick<AppOptions, 'addressGuard' | 'mailer' | 'usage' | 'metrics' | 'loops'>>
  /** Takes up nothing new, and waits for what is under way. */
  close(): Promise<void>
}

/** How often sessions are warmed, before they rest so long that they close: the first payments in a new one take 50 ms. */
const warmEveryMs = (idleSeconds * 1_000) / 2

/** Age of the last read of the index from which we assume that no keeper runs: one reads every second or two. */
const recordAgeMs = 10_000

/** How often tabs are looked after. The keeper does it too, more often. */
const tabUpkeepMs = 15_000

/** Keeps a network's record while nobody else does, so that settlements by strangers still show. */
function createSpareRecorder(
  sql: Database,
  served: ServedNetwork,
  { maxLagBlocks, log, onBadRow }: { maxLagBlocks: bigint; log: Logger; onBadRow: OnBadRow },
) {
  const { chainId } = served.network
  const recorder = createRecorder({ sql, served, finalityBlocks: finalityOf(chainId), log, onBadRow })
  return async () => {
    const age = await readRecordAge(sql, chainId)
    if (age !== null && age <= recordAgeMs) return
    const record = await readRecordState(sql, served, maxLagBlocks)
    if ((await recorder.followReorgs(record)) !== null) await recorder.record()
  }
}

/** Starts an api process's other work: webhooks, counters, and while no keeper runs the record and tabs. */
export function startBackgroundWork({
  sql,
  tabDatabase = onOnePostgres(sql),
  networks,
  settings,
  log,
}: Pick<AppOptions, 'sql' | 'networks' | 'settings' | 'log'> & {
  tabDatabase?: TabDatabase
}): BackgroundWork {
  const metrics = createApiMetrics()
  collectApiState(metrics, {
    sql,
    tabDatabase,
    networks: networks.map(({ network }) => network),
    tabBudget: settings.tabs?.budget ?? null,
  })
  const failed = (loop: string) => () => metrics.backgroundErrors.inc({ loop })
  const onBadRow: OnBadRow = (step, err, row) => {
    metrics.badRows.inc({ step })
    logBadRow(log)(step, err, row)
  }

  const addressGuard = createAddressGuard({ allowPrivate: settings.webhookAllowPrivate })
  const usage = createUsageCounters({ sql })
  const loops: Loop[] = [
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
      step: createRetention(sql, { days: settings.retentionDays, now: Date.now, onBadRow }),
      onError(error) {
        log.warn({ err: error }, 'what is long over can not be deleted for now')
        failed('retention')()
      },
    }),
  ]
  // Apart from the others: if a node is down they stand still, while payments are verified all the same.
  const recorders = networks.map((served) => {
    const network = served.network.name
    return repeat({
      name: `record ${network}`,
      everyMs: 2_000,
      step: createSpareRecorder(sql, served, { maxLagBlocks: settings.maxIndexLagBlocks, log, onBadRow }),
      onError(error) {
        log.warn({ err: error, network }, 'the record can not be kept for now')
        failed('record')()
      },
    })
  })
  if (settings.tabs) {
    const upkeep = createTabUpkeep({
      sql,
      tabs: tabDatabase,
      networks,
      minimumPrices: settings.minimumPrices,
      now: () => new Date(),
      onBadRow,
      rules: { ...closingTimes, amount: settings.triggers.highValue, earnedTimes: settings.tabs.earnedHours },
    })
    loops.push(
      repeat({
        name: 'tabs',
        everyMs: tabUpkeepMs,
        async step() {
          let isBusy = false
          await takeParts({
            'close and take': async () => {
              isBusy = (await upkeep.closeAndTake()) === 'busy'
            },
            forget: async () => {
              if (await upkeep.forget(new Date(Date.now() - settings.retentionDays * 86_400_000)))
                isBusy = true
            },
          })
          return isBusy ? 'busy' : 'idle'
        },
        onError(error) {
          log.warn({ err: error }, 'tabs can not be closed for now')
          failed('tabs')()
        },
      }),
    )
  }
  if (settings.discovery) {
    loops.push(
      repeat({
        name: 'origins',
        everyMs: 2_000,
        step: createOriginChecks({ sql, guard: addressGuard, issuer: settings.issuer, networks, onBadRow }),
        onError(error) {
          log.warn({ err: error }, 'sellers can not be asked whose they are for now')
          failed('origins')()
        },
      }),
    )
  }
  const mailer = settings.mail && createMailer(settings.mail)
  const deliveries = createDeliveryLoop({
    sql,
    guard: addressGuard,
    mail: mailer && { mailer, issuer: settings.issuer },
    log,
    onAttempt(outcome, receiver) {
      if (receiver === 'webhook') metrics.webhookAttempts.inc({ outcome })
      else metrics.mails.inc({ outcome: outcome === 'delivered' ? 'sent' : outcome })
    },
    onBadRow,
    onError: failed('webhooks'),
  })
  loops.push(deliveries.start())

  return {
    shared: { addressGuard, mailer, usage, metrics, loops },
    async close() {
      await Promise.all([deliveries.close(), ...[...loops, ...recorders].map((loop) => loop.stop())])
      await usage.flush().catch(() => {})
    },
  }
}
