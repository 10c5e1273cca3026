import { readProgress, type SettlementProgress } from '@tollkeeper/ledger/acceptance/facilitations'
import type { Queryable } from '@tollkeeper/ledger/store/database'

type Waiting = {
  paymentId: string
  untilMs: number
  isEnough: (progress: SettlementProgress) => boolean
  last?: SettlementProgress | undefined
  resolve: (progress: SettlementProgress | undefined) => void
}

const everyMs = 50
/** How many waiting settlements one look reads; the others come next. */
const mostAtOnce = 500

/** Watches the settlement of payments that somebody waits for, all of them by one question. */
export function createSettlementWatch(sql: Queryable) {
  const waiting: Waiting[] = []
  let isLooking = false

  async function look(): Promise<void> {
    const some = waiting.splice(0, mostAtOnce)
    // A failed read proves nothing: the next look reads again.
    const progress = await readProgress(
      sql,
      some.map(({ paymentId }) => paymentId),
    ).catch(() => new Map<string, SettlementProgress>())
    const now = performance.now()
    for (const one of some) {
      one.last = progress.get(one.paymentId) ?? one.last
      const isOver = (one.last && one.isEnough(one.last)) || one.untilMs <= now
      if (isOver) one.resolve(one.last)
      else waiting.push(one)
    }
  }

  async function run(): Promise<void> {
    if (isLooking) return
    isLooking = true
    while (waiting.length > 0) {
      await look()
      await new Promise((resolve) => setTimeout(resolve, everyMs))
    }
    isLooking = false
  }

  return {
    /** The payment once it has come far enough, or `untilMs` has come (by `performance.now`); undefined where it was never seen. */
    wait(paymentId: string, untilMs: number, isEnough: Waiting['isEnough'] = isDecided) {
      const { promise, resolve } = Promise.withResolvers<SettlementProgress | undefined>()
      waiting.push({ paymentId, untilMs, isEnough, resolve })
      void run()
      return promise
    },
  }
}

/** Whether it moved or is given up. */
export function isDecided({ state, ended }: SettlementProgress): boolean {
  return state !== 'open' || ended === 'failed' || ended === 'voided'
}

/** Whether the record shows that its payer has cancelled it or used it for something else. */
export function isUsedUp({ state }: Pick<SettlementProgress, 'state'>): boolean {
  return state === 'cancelled' || state === 'foreign_use'
}
