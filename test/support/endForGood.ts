import { type Ending, endPayments } from '@tollkeeper/ledger/queue/stages'
import type { Database } from '@tollkeeper/ledger/store/database'

/** Finalizes a payment, as a keeper does once the payment's authorizations can no longer move. */
export async function endForGood(sql: Database, ending: Omit<Ending, 'isFinal'>): Promise<void> {
  const ended = await endPayments(sql, [{ ...ending, isFinal: true }], new Date())
  if (ended.length !== 1) throw new Error(`${ending.paymentId} is in flight, or no longer in the queue`)
}
