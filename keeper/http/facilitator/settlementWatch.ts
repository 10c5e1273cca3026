import { readProgress, type SettlementProgress } from '#ledger/acceptance/facilitations'
import type { Queryable } from '#ledger/store/database'

/** Watches the settlement of payments that somebody waits for, all of them by one question. */
export type SettlementWatch = {
  /**
   * The payment once it has come far enough, or `untilMs` has come (by `performance.now`); undefined where it was never seen.
   *
   * @param isEnough default: {@link isDecided}.
   */
  wait(
    paymentId: string,
    untilMs: number,
    isEnough?: (progress: SettlementProgress) => boolean,
  ): Promise<SettlementProgress | undefined>
}

type Waiting = {
  paymentId: string
  untilMs: number
  isEnough: (progress: SettlementProgress) => boolean
  last?: SettlementProgress | undefined
  resolve: (progress: SettlementProgress | undefined) => void
}

const everyMs = 50

export function createSettlementWatch(sql: Queryable): SettlementWatch {
  let waiting: Waiting[] = []
  let isLooking = false

  async function look(): Promise<void> {
    // What fails to be read now is read the next time: nothing is concluded from that.
    const progress = await readProgress(
      sql,
      waiting.map(({ paymentId }) => paymentId),
    ).catch(() => new Map<string, SettlementProgress>())
    const now = performance.now()
    waiting = waiting.filter((one) => {
      one.last = progress.get(one.paymentId) ?? one.last
      const isOver = (one.last && one.isEnough(one.last)) || one.untilMs <= now
      if (isOver) one.resolve(one.last)
      return !isOver
    })
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
    wait: (paymentId, untilMs, isEnough = isDecided) =>
      new Promise((resolve) => {
        waiting.push({ paymentId, untilMs, isEnough, resolve })
        void run()
      }),
  }
}

/** Whether it moved, or is given up. */
export function isDecided({ state, ended }: SettlementProgress): boolean {
  return state !== 'open' || ended === 'failed' || ended === 'voided'
}
