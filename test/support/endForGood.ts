import { type Ending, endPayments } from '@tollkeeper/ledger/queue/stages'
import type { Database } from '@tollkeeper/ledger/store/database'

/** Ends a payment as a keeper does once nothing of it can move any more. */
export async function endForGood(sql: Database, ending: Omit<Ending, 'isFinal'>): Promise<void> {
  const ended = await endPayments(sql, [{ ...ending, isFinal: true }], new Date())
  if (ended.length !== 1) throw new Error(`${ending.paymentId} is under way, or over`)
}
