import { readProgress, type SettlementProgress } from '@tollkeeper/ledger/acceptance/facilitations'
import type { Queryable } from '@tollkeeper/ledger/store/database'

type Waiting = {
  paymentId: string
  untilMs: number
  isEnough: (progress: SettlementProgress) => boolean
  sinceMs: number
  /** When it is read again. */
  dueMs: number
  last?: SettlementProgress | undefined
  resolve: (progress: SettlementProgress | undefined) => void
}

const everyMs = 50
/** The longest pause between two reads of a settlement. */
const mostPauseMs = 500
/** Maximum number of settlements that one query reads; the others come next. */
const mostAtOnce = 500

/**
 * One whose transaction is sent is read every time. Of the others those that have waited for long are read less often: they wait for
 * their turn in the queue, and a thousand of them would keep the database busy.
 */
export function pauseOf(progress: Pick<SettlementProgress, 'txHash'> | undefined, waitedMs: number): number {
  if (progress && progress.txHash !== null) return 0
  return Math.min(waitedMs / 8, mostPauseMs)
}

/**
 * Watches the settlement of payments that callers wait for, all of them by one query.
 *
 * @param stopping ends all waits: the process ends, and nothing that it waits for happens in time.
 */
export function createSettlementWatch(sql: Queryable, stopping: AbortSignal) {
  const waiting = new Set<Waiting>()
  let isLooking = false

  async function look(): Promise<void> {
    const began = performance.now()
    const due = [...waiting].filter(
      ({ dueMs, untilMs }) => dueMs <= began || untilMs <= began || stopping.aborted,
    )
    const some = due.toSorted((a, b) => a.dueMs - b.dueMs).slice(0, mostAtOnce)
    if (some.length === 0) return
    // A failed read proves nothing: the next look reads again.
    const progress = await readProgress(
      sql,
      some.map(({ paymentId }) => paymentId),
    ).catch(() => new Map<string, SettlementProgress>())
    const now = performance.now()
    for (const one of some) {
      one.last = progress.get(one.paymentId) ?? one.last
      one.dueMs = now + pauseOf(one.last, now - one.sinceMs)
      const isOver = (one.last && one.isEnough(one.last)) || one.untilMs <= now || stopping.aborted
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
    /** Returns the payment once it has come far enough or `untilMs` has come (by `performance.now`); undefined if it was never read. */
    wait(paymentId: string, untilMs: number, isEnough: Waiting['isEnough']) {
      const { promise, resolve } = Promise.withResolvers<SettlementProgress | undefined>()
      const sinceMs = performance.now()
      waiting.add({ paymentId, untilMs, isEnough, resolve, sinceMs, dueMs: sinceMs })
      void run()
      return promise
    },
  }
}
