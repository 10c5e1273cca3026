import type { ServedNetwork } from '@tollkeeper/chain/servedNetworks'
import { isHeld } from '@tollkeeper/ledger/batches/holds'
import { countFailedSweeps } from '@tollkeeper/ledger/batches/sweeps'
import { countIndexGaps } from '@tollkeeper/ledger/facts/indexedHead'
import { readRefundPool } from '@tollkeeper/ledger/queue/gasDraws'
import { countHeld, countOpenBatches, readQueueDepth } from '@tollkeeper/ledger/queue/queueDepth'
import { holdReasons } from '@tollkeeper/ledger/queue/stages'
import type { Context } from './context.ts'

/** Maximum share of time that is spent on counting for metrics. */
const share = 0.05
const openStates = ['claimed', 'broadcast', 'mined', 'reorged']

/** Reasons why the index could not read a log. */
const gapReasons = ['receipt_unavailable', 'unpaired_authorization', 'outcomes_mismatch']

type ReporterOptions = Pick<Context, 'sql' | 'metrics' | 'now'> & {
  served: Pick<ServedNetwork, 'network' | 'token'>
  settings: Pick<Context['settings'], 'gasAllowance'>
}

/** Creates a function that reports the queue's state to the metrics, by payee. */
export function createReporter({ sql, served, settings, metrics, now }: ReporterOptions) {
  const { name: network, chainId } = served.network
  let nextAt = 0
  let payees: string[] = []
  // Create the series at 0: Prometheus sees no increase in a series that starts at 1, so the first reorg would trigger no alert.
  metrics.reorgs.inc({ network }, 0)
  return async function report(): Promise<void> {
    const began = performance.now()
    if (began < nextAt) return
    try {
      await count()
    } finally {
      // Also wait after a failed count: it may have failed at a time limit, and then it took longer than any other count.
      nextAt = performance.now() + (performance.now() - began) / share
    }
  }

  async function count(): Promise<void> {
    const depths = await readQueueDepth(sql, { chainId, token: served.token })
    for (const payee of payees) {
      metrics.queuedPayments.remove({ network, payee })
      metrics.queueOldestSeconds.remove({ network, payee })
    }
    payees = depths.map(({ payee }) => payee)
    for (const { payee, verified, retrying, oldestAt } of depths) {
      metrics.queuedPayments.set({ network, payee }, verified + retrying)
      const age = oldestAt === null ? 0 : (now().getTime() - oldestAt.getTime()) / 1000
      metrics.queueOldestSeconds.set({ network, payee }, age)
    }
    for (const status of ['verified', 'retrying', 'settling'] as const) {
      const total = depths.reduce((sum, depth) => sum + depth[status], 0)
      metrics.payments.set({ network, status }, total)
    }
    const batches = await countOpenBatches(sql, chainId)
    for (const state of openStates) metrics.openBatches.set({ network, state }, batches[state] ?? 0)
    const held = await countHeld(sql, { chainId, token: served.token })
    for (const reason of holdReasons) metrics.heldPayments.set({ network, reason }, held[reason] ?? 0)
    const isTooDear = await isHeld(sql, chainId, now())
    const waiting = depths.reduce((sum, depth) => sum + depth.verified, 0)
    metrics.heldPayments.set({ network, reason: 'gas_price' }, isTooDear ? waiting : 0)
    const gaps = await countIndexGaps(sql, chainId)
    for (const reason of gapReasons) {
      if (gaps) metrics.indexGaps.set({ network, reason }, gaps.get(reason) ?? 0)
    }
    const pool = await readRefundPool(sql, { chainId, common: settings.gasAllowance, now: now() })
    metrics.refundGasLeft.set({ network }, Number(pool) / 1e6)
    metrics.failedSweeps.set({ network }, await countFailedSweeps(sql, chainId))
  }
}
