import { readLeftOfSubmission } from '#ledger/acceptance/submissions'
import {
  type BatchOutcome,
  type BatchRow,
  type BatchState,
  closeBatch,
  lockBatch,
} from '#ledger/batches/batches'
import { type Lease, requireLease } from '#ledger/batches/leases'
import type { Queryable } from '#ledger/store/database'
import { codeOfDrop, type Drop } from '../settler/plan.ts'
import type { Context } from './context.ts'
import { applyDrops } from './drops.ts'
import { failPayment } from './failPayment.ts'

export type BatchEnd = {
  /** The state it must still be in; in any other, somebody else has dealt with it. */
  from: BatchState
  /** Fences the write where the batch belongs to a wallet at work; a mined one belongs to nobody. */
  lease?: Lease
  /** Written in the same database transaction, before the batch is closed. `false` leaves it open. */
  before?: (tx: Queryable) => Promise<unknown>
  /** Why items of it weren't settled: each goes where its reason leads. */
  drops?: readonly Drop[]
} & (
  | { outcome: Extract<BatchOutcome, 'settled'> }
  | {
      outcome: Exclude<BatchOutcome, 'settled'>
      /** Why what was submitted together isn't settled; a payment with a drop of its own fails for that. */
      failure: string
    }
)

/**
 * Ends a batch: the only place that does. What is still in it can be claimed again, what was submitted together fails
 * together, and the outcome is counted, in one database transaction and once.
 *
 * @returns whether this call ended it.
 */
export async function endBatch(context: Context, batch: BatchRow, end: BatchEnd): Promise<boolean> {
  const { sql, now, metrics, served, checkpoint } = context
  const { from, lease, outcome, before, drops = [] } = end
  await checkpoint('before-end')
  const isEnded = await sql.begin(async (tx) => {
    if (lease) await requireLease(tx, lease)
    if (!(await lockBatch(tx, batch.id, from))) return false
    if ((await before?.(tx)) === false) return false
    if (drops.length > 0) await applyDrops(context, tx, batch, drops)
    await closeBatch(tx, batch.id, outcome, now())
    if (batch.lane === 'direct' && 'failure' in end)
      await failSubmission(context, tx, batch, drops, end.failure)
    return true
  })
  await checkpoint('after-end')
  if (isEnded) metrics.batches.inc({ network: served.network.name, trigger: batch.trigger, outcome })
  return isEnded
}

async function failSubmission(
  context: Context,
  tx: Queryable,
  { id: batchId }: BatchRow,
  drops: readonly Drop[],
  failure: string,
): Promise<void> {
  const own = new Map(drops.map((drop) => [drop.item.paymentId, codeOfDrop(drop)]))
  for (const paymentId of await readLeftOfSubmission(tx, batchId)) {
    const code = own.get(paymentId) ?? failure
    await failPayment(context, tx, { paymentId, batchId, code, detail: '', isFinal: true })
  }
}
