import { readLeftOfSubmission } from '@tollkeeper/ledger/acceptance/submissions'
import {
  type BatchOutcome,
  type BatchRow,
  type BatchState,
  closeBatch,
  lockBatch,
} from '@tollkeeper/ledger/batches/batches'
import { type Lease, requireLease } from '@tollkeeper/ledger/batches/leases'
import { releasePayments } from '@tollkeeper/ledger/queue/stages'
import type { Queryable } from '@tollkeeper/ledger/store/database'
import type { Unsettled } from '../settler/journal.ts'
import { codeOfDrop } from '../settler/plan.ts'
import type { Context } from './context.ts'
import { applyDrops } from './drops.ts'
import { failPayment } from './failPayment.ts'

export type BatchEnd = {
  /** The state it must still be in; otherwise somebody else has dealt with it. */
  from: BatchState
  /** Fences the write if the batch belongs to a wallet at work; a mined one belongs to nobody. */
  lease?: Lease
  /** Written in the same database transaction, before the batch is closed. `false` leaves it open. */
  before?: (tx: Queryable) => Promise<unknown>
  outcome: BatchOutcome
  /** Lets go of what is in it. Without: its transaction is final, and its payments were let go of when it was mined. */
  unsettled?: Pick<Unsettled, 'failure' | 'drops'>
}

/**
 * Ends a batch; nothing else does. In one database transaction, its remaining payments can be claimed again, and the outcome
 * is counted once.
 *
 * @returns whether this call ended it.
 */
export async function endBatch(context: Context, batch: BatchRow, end: BatchEnd): Promise<boolean> {
  const { sql, now, metrics, served, checkpoint } = context
  const { from, lease, outcome, before, unsettled } = end
  await checkpoint('before-end')
  const isEnded = await sql.begin(async (tx) => {
    if (lease) await requireLease(tx, lease)
    if (!(await lockBatch(tx, batch.id, from))) return false
    if ((await before?.(tx)) === false) return false
    if (unsettled) await letGo(context, tx, batch, unsettled)
    await closeBatch(tx, batch.id, outcome, now())
    return true
  })
  await checkpoint('after-end')
  if (isEnded) metrics.batches.inc({ network: served.network.name, trigger: batch.trigger, outcome })
  return isEnded
}

/** Lets all payments of a batch go, with the reason of each: they can be claimed again, but a submission fails as a whole. */
export async function letGo(
  context: Context,
  tx: Queryable,
  batch: BatchRow,
  { failure, drops = [] }: Pick<Unsettled, 'failure' | 'drops'>,
): Promise<void> {
  const { id: batchId } = batch
  if (drops.length > 0) await applyDrops(context, tx, batch, drops)
  await releasePayments(tx, batchId, context.now())
  if (batch.lane !== 'direct') return
  const own = new Map(drops.map((drop) => [drop.item.paymentId, codeOfDrop(drop)]))
  for (const paymentId of await readLeftOfSubmission(tx, batchId)) {
    const code = own.get(paymentId) ?? failure
    await failPayment(context, tx, { paymentId, batchId, code, detail: '', isFinal: true })
  }
}
