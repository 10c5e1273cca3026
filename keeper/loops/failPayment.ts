import { type PaymentFailure, recordFailure } from '@tollkeeper/ledger/queue/failures'
import type { Queryable } from '@tollkeeper/ledger/store/database'
import type { Context } from './context.ts'

/** Counts a failure of a payment that is still ours to fail, logs it, and tells its provider if it must. */
export async function failPayment(
  { served, now, log, metrics }: Context,
  tx: Queryable,
  failure: PaymentFailure,
): Promise<void> {
  const { paymentId: payment, code, detail } = failure
  const attempts = await recordFailure(tx, failure, { now: now() })
  if (attempts === null) return
  metrics.attempts.inc({ network: served.network.name, result: code })
  log.warn({ payment, code, detail, attempts }, 'a payment could not be settled')
}
