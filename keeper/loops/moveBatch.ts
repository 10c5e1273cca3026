import { readLeftOfSubmission } from '@tollkeeper/ledger/acceptance/submissions'
import {
  type BatchOutcome,
  type BatchRow,
  type BatchState,
  closeBatch,
  lockBatch,
  setBatchState,
} from '@tollkeeper/ledger/batches/batches'
import type { BatchItem } from '@tollkeeper/ledger/batches/items'
import { type Lease, requireLease } from '@tollkeeper/ledger/batches/leases'
import { markDropped } from '@tollkeeper/ledger/batches/transactions'
import { endSettled } from '@tollkeeper/ledger/outcomes/conclusions'
import { quarantinePayments, releasePayments } from '@tollkeeper/ledger/queue/stages'
import type { Queryable } from '@tollkeeper/ledger/store/database'
import { codeOfDrop, type Drop } from '../settler/plan.ts'
import type { Context } from './context.ts'
import { countHolds, movePayments, type PaymentMove } from './movePayments.ts'
import { noteTokenPaused } from './tokenPause.ts'

/** What became of an item that leaves its batch: a plan left it out, or our mined transaction didn't settle it. */
export type ItemResult =
  | Drop
  | ({ item: BatchItem; isPartial?: false } & ({ reason: 'unsettled' } | { reason: 'untried' }))

/** How a batch leaves its state, and its payments the batch. */
export type BatchMove = {
  /** The state it must still be in; otherwise another process has moved it. */
  from: BatchState
  /** The next state, or the outcome with which it is closed; null: it stays where it is. */
  to: 'broadcast' | 'mined' | 'reorged' | { outcome: BatchOutcome } | null
  /** Fences the write if the batch belongs to a wallet at work; a mined one belongs to no one. */
  lease?: Lease
  /** Stores in the same database transaction what the move is based on. Returns the items that leave; null stops the move. */
  record?: (tx: Queryable) => Promise<readonly ItemResult[] | null>
  /**
   * What becomes of the other payments: they stay, they have settled, or they leave. `failure`: why those of a submission fail
   * then, unless they have a reason of their own.
   */
  others: 'stay' | 'settled' | { failure: string }
}

/**
 * Moves a batch to its next state, and its payments to theirs, in one database transaction. Nothing else moves a batch once it is
 * claimed.
 *
 * @returns whether it was moved.
 */
export async function moveBatch(context: Context, batch: BatchRow, move: BatchMove): Promise<boolean> {
  const { sql, now, metrics, served, checkpoint } = context
  const { from, to, lease, record, others } = move
  const outcome = to !== null && typeof to === 'object' ? to.outcome : null
  if (outcome !== null) await checkpoint('before-end')
  let moves: readonly PaymentMove[] = []
  let isTokenPaused = false
  const isMoved = await sql.begin(async (tx) => {
    // Sent together: within a database transaction the answers come in order.
    const [, locked] = await Promise.all([lease && requireLease(tx, lease), lockBatch(tx, batch.id, from)])
    const results = locked && (record ? await record(tx) : [])
    if (!results) return false
    moves = await release(context, tx, batch, results, others)
    isTokenPaused = results.some(({ reason }) => reason === 'token_paused')
    if (to === 'broadcast' && results.length > 0) await markDropped(tx, batch.id)
    if (others === 'settled') await endSettled(tx, batch.id, now())
    if (outcome !== null) await closeBatch(tx, batch.id, outcome, now())
    else if (to !== null && typeof to === 'string') await setBatchState(tx, batch.id, to)
    return true
  })
  countHolds(context, moves)
  if (isTokenPaused) noteTokenPaused(context)
  if (outcome === null) return isMoved
  await checkpoint('after-end')
  if (isMoved) metrics.batches.inc({ network: served.network.name, trigger: batch.trigger, outcome })
  return isMoved
}

/**
 * Releases payments that leave a batch, and moves each where the result of its item says. Without a result it can be claimed again, but a
 * submission fails as a whole. An item with one half still planned stays.
 *
 * @returns the moves of the payments that have a result.
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
  // Before they are released, which would part the payments of a submission: those aren't quarantined.
  await quarantinePayments(tx, untried, batchId)
  await releasePayments(tx, batchId, context.now(), failure === null ? positions : undefined)
  const moves = results.flatMap(({ item: { paymentId }, isPartial, ...result }): PaymentMove[] =>
    paymentId === null || (isPartial && result.reason !== 'failed') ? [] : [{ paymentId, ...result }],
  )
  await movePayments(context, tx, moves, batchId)
  if (failure === null || lane !== 'direct') return moves
  const own = new Map(results.map((result) => [result.item.paymentId, codeOf(result)]))
  const left = await readLeftOfSubmission(tx, batchId)
  const failures = left.map((paymentId): PaymentMove => {
    const code = own.get(paymentId) ?? failure
    return { paymentId, reason: 'failed', failure: { code, detail: '' }, isFinal: true }
  })
  await movePayments(context, tx, failures, batchId)
  return moves
}

/** Returns why the payment of a submission fails by its own result; null: its result says nothing of it. */
function codeOf(result: ItemResult): string | null {
  return result.reason === 'untried' || result.reason === 'unsettled' ? null : codeOfDrop(result)
}
