import type { Queryable } from '../store/database.ts'
import { readProgress, type SettlementProgress } from './facilitations.ts'

type Waiting = {
  paymentId: string
  untilMs: number
  isEnough: (progress: SettlementProgress) => boolean
  sinceMs: number
  /** Time of the next read. */
  dueMs: number
  last?: SettlementProgress | undefined
  resolve: (progress: SettlementProgress | undefined) => void
}

const everyMs = 50
/** Maximum pause in ms between two reads of a settlement. */
const mostPauseMs = 500
/** Maximum number of settlements that one query reads. The next query reads the remaining settlements. */
const mostAtOnce = 500

/**
 * Returns the pause in ms until the next read of a settlement. A settlement whose transaction is sent is read every time. A settlement that still
 * waits in the queue is read less often the longer it has waited, because reading a thousand of them every time would keep the database busy.
 */
export function pauseOf(progress: Pick<SettlementProgress, 'txHash'> | undefined, waitedMs: number): number {
  if (progress && progress.txHash !== null) return 0
  return Math.min(waitedMs / 8, mostPauseMs)
}

/**
 * Creates a watch over the payments whose callers wait for settlement. One query reads the progress of all these payments.
 *
 * @param stopping ends all waits, because the process stops before the settlements can complete. Default: waits end at their time limits.
 */
export function createSettlementWatch(sql: Queryable, stopping?: AbortSignal) {
  const waiting = new Set<Waiting>()
  let isLooking = false

  async function look(): Promise<void> {
    const began = performance.now()
    const due = [...waiting].filter(
      ({ dueMs, untilMs }) => dueMs <= began || untilMs <= began || stopping?.aborted,
    )
    const some = due.toSorted((a, b) => a.dueMs - b.dueMs).slice(0, mostAtOnce)
    if (some.length === 0) return
    // Ignore a failed read: the next round reads again.
    const progress = await readProgress(
      sql,
      some.map(({ paymentId }) => paymentId),
    ).catch(() => new Map<string, SettlementProgress>())
    const now = performance.now()
    for (const one of some) {
      one.last = progress.get(one.paymentId) ?? one.last
      one.dueMs = now + pauseOf(one.last, now - one.sinceMs)
      const isOver = (one.last && one.isEnough(one.last)) || one.untilMs <= now || stopping?.aborted
      if (!isOver) continue
      waiting.delete(one)
      one.resolve(one.last)
    }
  }

  async function run(): Promise<void> {
    if (isLooking) return
    isLooking = true
    while (waiting.size > 0) {
      await look()
      await new Promise((resolve) => setTimeout(resolve, everyMs))
    }
    isLooking = false
  }

  return {
    /**
     * Returns the payment's progress once `isEnough` accepts it, or at `untilMs` (by `performance.now`); undefined if it was never read.
     */
    wait(paymentId: string, untilMs: number, isEnough: Waiting['isEnough']) {
      const { promise, resolve } = Promise.withResolvers<SettlementProgress | undefined>()
      const sinceMs = performance.now()
      waiting.add({ paymentId, untilMs, isEnough, resolve, sinceMs, dueMs: sinceMs })
      void run()
      return promise
    },
  }
}

export type SettlementWatch = ReturnType<typeof createSettlementWatch>
