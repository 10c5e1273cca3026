import { readLeftOfSubmission } from '@tollkeeper/ledger/acceptance/submissions'
import {
  type BatchResult,
  type BatchRow,
  type BatchState,
  closeBatch,
  lockBatch,
  setBatchState,
} from '@tollkeeper/ledger/batches/batches'
import type { BatchItem } from '@tollkeeper/ledger/batches/items'
import { type Lease, requireLease } from '@tollkeeper/ledger/batches/leases'
import { markDropped } from '@tollkeeper/ledger/batches/transactions'
import { isolatePayments, releasePayments } from '@tollkeeper/ledger/queue/stages'
import { endSettled } from '@tollkeeper/ledger/results/finalizations'
import type { Queryable } from '@tollkeeper/ledger/store/database'
import { codeOfDrop, type Drop } from '../settler/plan.ts'
import type { Context } from './context.ts'
import { countHolds, movePayments, type PaymentMove } from './movePayments.ts'
import { noteTokenPaused } from './tokenPause.ts'

/** The reason why an item leaves its batch: a plan left it out, or our mined transaction didn't settle it. */
export type ItemResult =
  | Drop
  | ({ item: BatchItem; isPartial?: false } & ({ reason: 'unsettled' } | { reason: 'untried' }))

/** A batch's change of state, and the changes of its payments. */
export type BatchMove = {
  /** The state in which the batch must still be. Otherwise another process has moved it, and nothing happens. */
  from: BatchState
  /** The next state, or the result with which the batch is closed; null if it stays in its state. */
  to: 'broadcast' | 'mined' | 'reorged' | { result: BatchResult } | null
  /** The lease that must still be held. Omitted for a mined batch, because any keeper may finalize it. */
  lease?: Lease
  /** Stores the facts behind the move, in the same database transaction. Returns the items that leave, or null to cancel the move. */
  record?: (tx: Queryable) => Promise<readonly ItemResult[] | null>
  /**
   * What happens to the payments whose items `record` doesn't return: they stay in the batch, have settled, or leave the batch. Payments of a
   * submission that leave fail, with the code of their result if they have one, otherwise with `failure`.
   */
  others: 'stay' | 'settled' | { failure: string }
}

/**
 * Moves a batch and its payments to their next states, in one database transaction. No other function moves a claimed batch.
 *
 * @returns whether the batch was moved
 */
export async function moveBatch(context: Context, batch: BatchRow, move: BatchMove): Promise<boolean> {
  const { sql, now, metrics, served, checkpoint } = context
  const { from, to, lease, record, others } = move
  const result = to !== null && typeof to === 'object' ? to.result : null
  if (result !== null) await checkpoint('before-end')
  let moves: readonly PaymentMove[] = []
  let isTokenPaused = false
  const isMoved = await sql.begin(async (tx) => {
    // Both statements are sent together. Within a database transaction they run in order.
    const [, locked] = await Promise.all([lease && requireLease(tx, lease), lockBatch(tx, batch.id, from)])
    const results = locked && (record ? await record(tx) : [])
    if (!results) return false
    moves = await release(context, tx, batch, results, others)
    isTokenPaused = results.some(({ reason }) => reason === 'token_paused')
    if (to === 'broadcast' && results.length > 0) await markDropped(tx, batch.id)
    const isEmpty = others === 'settled' && (await endSettled(tx, batch.id, now())) === 0
    if (result !== null) await closeBatch(tx, batch.id, result, now(), isEmpty)
    else if (to !== null && typeof to === 'string') await setBatchState(tx, batch.id, to)
    return true
  })
  countHolds(context, moves)
  if (isTokenPaused) noteTokenPaused(context)
  if (result === null) return isMoved
  await checkpoint('after-end')
  if (isMoved) metrics.batches.inc({ network: served.network.name, trigger: batch.trigger, outcome: result })
  return isMoved
}

/**
 * Releases payments that leave a batch, and moves each according to its item's result. A payment without a result can be claimed again,
 * but a submission fails as a whole. An item stays if one of its authorizations is still planned.
 *
 * @returns the moves of the payments that have a result
 */
async function release(
  context: Context,
  tx: Queryable,
  { id: batchId, lane }: BatchRow,
  results: readonly ItemResult[],
  others: BatchMove['others'],
): Promise<PaymentMove[]> {
  const failure = typeof others === 'object' ? others.failure : null
  if (results.length === 0 && failure === null) return []
  const leaving = results.filter(({ isPartial }) => isPartial !== true)
  const untried = leaving.flatMap(({ item, reason }) => (reason === 'untried' ? (item.paymentId ?? []) : []))
  const positions = leaving.map(({ item }) => item.position)
  // This must come before the release. The release takes payments out of their submission, and payments of a submission must not be isolated.
  await isolatePayments(tx, untried, batchId)
  await releasePayments(tx, batchId, context.now(), failure === null ? positions : undefined)
  const moves = results.flatMap(({ item: { paymentId }, isPartial, ...result }): PaymentMove[] =>
    paymentId === null || (isPartial && result.reason !== 'failed') ? [] : [{ paymentId, ...result }],
  )
  await movePayments(context, tx, moves, batchId)
  if (failure === null || lane !== 'submission') return moves
  const own = new Map(results.map((result) => [result.item.paymentId, codeOf(result)]))
  const left = await readLeftOfSubmission(tx, batchId)
  const failures = left.map((paymentId): PaymentMove => {
    const code = own.get(paymentId) ?? failure
    return { paymentId, reason: 'failed', failure: { code, detail: '' }, isFinal: true }
  })
  await movePayments(context, tx, failures, batchId)
  return moves
}

/** Returns the failure code that a result gives a submission's payment, or null if the result isn't a failure. */
function codeOf(result: ItemResult): string | null {
  return result.reason === 'untried' || result.reason === 'unsettled' ? null : codeOfDrop(result)
}
