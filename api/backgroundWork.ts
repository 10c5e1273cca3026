import { finalityOf } from '@tollkeeper/chain/finality'
import type { ServedNetwork } from '@tollkeeper/chain/servedNetworks'
import { warmSessions } from '@tollkeeper/ledger/acceptance/acceptance'
import { readRecordAge } from '@tollkeeper/ledger/facts/record'
import { readRecordState } from '@tollkeeper/ledger/facts/recordState'
import { createRecorder } from '@tollkeeper/ledger/results/recorder'
import { createRetention } from '@tollkeeper/ledger/results/retention'
import { type Database, idleSeconds } from '@tollkeeper/ledger/store/database'
import { onOnePostgres, type TabDatabase } from '@tollkeeper/ledger/tabs/tabDatabase'
import { closingTimes, createTabUpkeep } from '@tollkeeper/ledger/tabs/upkeep'
import { createAddressGuard } from '@tollkeeper/runtime/addressGuard'
import type { Logger } from '@tollkeeper/runtime/log'
import { type Loop, repeat } from '@tollkeeper/runtime/repeat'
import { logBadRow, type OnBadRow, takeParts } from '@tollkeeper/runtime/stepBack'
import type { AppOptions } from './app.ts'
import { createApiMetrics } from './http/metrics.ts'
import { createDeliveryLoop } from './notifications/deliveryLoop.ts'
import { createMailer } from './notifications/mailer.ts'
import { createOriginChecks } from './registry/originChecks.ts'
import { collectApiState } from './stateMetrics.ts'
import { createUsageCounters } from './views/usageCounters.ts'

export type BackgroundWork = {
  /** Options for `createApp`: the objects that the app and the background work share. */
  shared: Required<
    Pick<AppOptions, 'addressGuard' | 'mailer' | 'usage' | 'metrics' | 'loops' | 'onTabClosed'>
  >
  /** Starts no new work, and waits for the work in progress. */
  close(): Promise<void>
}

/**
 * Interval in ms between queries that keep database sessions open. Idle sessions are closed, and then the next payments would have to wait 50 ms
 * for a new session.
 */
const warmEveryMs = (idleSeconds * 1_000) / 2

/** If nothing has read the index for this many ms, we assume that no keeper runs: a keeper reads the index every second or two. */
const recordAgeMs = 10_000

/** Interval in ms between rounds of tab upkeep. A keeper also does this upkeep, and more often. */
const tabUpkeepMs = 15_000
/** Delay in ms between a buyer's closing of a tab and its import into the ledger. Tabs closed during the delay are imported together. */
const takeAfterMs = 250

/**
 * Creates a function that updates a network's record while no keeper of this gateway does. Without it, settlements by other operators' keepers would
 * not be shown.
 */
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

/**
 * Starts the work of an api process besides answering requests: it sends webhooks and stores counters. While no keeper runs, it also updates the
 * record and closes tabs.
 */
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
    issuer: settings.issuer,
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
        log.warn({ err: error }, 'usage can’t be written; retrying')
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
        log.warn({ err: error }, 'expired data can’t be deleted; retrying')
        failed('retention')()
      },
    }),
  ]
  // Each network has a separate loop. If a network's node is down, only that network's record stops, and payments are still verified.
  const recorders = networks.map((served) => {
    const network = served.network.name
    return repeat({
      name: `record ${network}`,
      everyMs: 2_000,
      step: createSpareRecorder(sql, served, { maxLagBlocks: settings.maxIndexLagBlocks, log, onBadRow }),
      onError(error) {
        log.warn({ err: error, network }, 'the record can’t be updated; retrying')
        failed('record')()
      },
    })
  })
  let onTabClosed = () => {}
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
    const loop = repeat({
      name: 'tabs',
      everyMs: tabUpkeepMs,
      async step() {
        let isBusy = false
        await takeParts({
          'close and take': async () => {
            isBusy = (await upkeep.closeAndTake()) === 'busy'
          },
          forget: async () => {
            if (await upkeep.forget(new Date(Date.now() - settings.retentionDays * 86_400_000))) isBusy = true
          },
        })
        return isBusy ? 'busy' : 'idle'
      },
      onError(error) {
        log.warn({ err: error }, 'tabs can’t be closed; retrying')
        failed('tabs')()
      },
    })
    loops.push(loop)
    onTabClosed = onceWithin(takeAfterMs, loop.wake)
  }
  if (settings.discovery) {
    loops.push(
      repeat({
        name: 'origins',
        everyMs: 2_000,
        step: createOriginChecks({ sql, guard: addressGuard, issuer: settings.issuer, networks, onBadRow }),
        onError(error) {
          log.warn({ err: error }, 'sellers’ URLs can’t be checked; retrying')
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
    shared: { addressGuard, mailer, usage, metrics, loops, onTabClosed },
    async close() {
      await Promise.all([deliveries.close(), ...[...loops, ...recorders].map((loop) => loop.stop())])
      await usage.flush().catch(() => {})
    },
  }
}

/** Returns a function that runs `run` after a pause. All calls during the pause cause one run. */
function onceWithin(pauseMs: number, run: () => void): () => void {
  let isWaiting = false
  return () => {
    if (isWaiting) return
    isWaiting = true
    setTimeout(() => {
      isWaiting = false
      run()
    }, pauseMs).unref()
  }
}
