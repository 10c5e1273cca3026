import type { Charged } from './charges.ts'
import { sleep } from './gatewayClient.ts'
import { askUntilCertain, maxOpen, type WaitUntil } from './recovery.ts'
import type { VerifiedPayment } from './verification.ts'

type Voidable = Pick<VerifiedPayment, 'paymentId' | 'tab'>

type VoidsOptions = {
  /** Makes one attempt to void. */
  voidPayment: (payment: Voidable) => Promise<Pick<Charged, 'outcome'>>
  /** Waits before a retry. Default: a timer that doesn't keep the process alive. */
  pause?: (ms: number) => Promise<void>
}

/** Retries voids whose outcome isn't known, however long an outage is: the requests failed, so nothing may be charged for them. */
export function createVoids({ voidPayment, pause = sleep }: VoidsOptions) {
  const open = new Set<Voidable>()

  /** @returns whether the outcome is known. Also true if the void was forgotten because there are too many. */
  async function repeat(payment: Voidable, delaysMs: Iterable<number>): Promise<boolean> {
    for (const delay of delaysMs) {
      await pause(delay)
      if (!open.has(payment)) return true
      if ((await voidPayment(payment)).outcome === 'unknown') continue
      open.delete(payment)
      return true
    }
    return false
  }

  return {
    /** Voids a payment in the background. Ends when the gateway has given a definite response. */
    repeatLater({ paymentId, tab }: Voidable, waitUntil?: WaitUntil): void {
      const payment = { paymentId, ...(tab && { tab }) }
      const [oldest] = open
      if (oldest && open.size >= maxOpen) open.delete(oldest)
      open.add(payment)
      askUntilCertain((delaysMs) => repeat(payment, delaysMs), waitUntil)
    },
  }
}
