import { readProgress } from '@tollkeeper/ledger/acceptance/facilitations'
import { giveUpSubmission, giveUpTogether } from '@tollkeeper/ledger/acceptance/submissions'
import type { BatchRow } from '@tollkeeper/ledger/batches/batches'
import { claimPayments, lockUnbatched } from '@tollkeeper/ledger/batches/claims'
import type { Lease } from '@tollkeeper/ledger/batches/leases'
import type { HalfState } from '@tollkeeper/ledger/facts/halves'
import type { BlockedPayment } from '@tollkeeper/ledger/queue/quarantine'
import type { Queryable } from '@tollkeeper/ledger/store/database'
import { holdsAfterDraws } from '../settler/gasPolicy.ts'
import type { ClaimPlan } from './choose.ts'
import type { Context } from './context.ts'
import { drawFromLedger } from './ledgerGas.ts'
import { movePayments, type PaymentMove } from './movePayments.ts'

/** What came of a plan. `hasMoved`: payments have left the queue, so it is worth another look. */
type Written = { batch: BatchRow | null; hasMoved: boolean }

/**
 * Carries out a plan in one database transaction.
 *
 * @throws {LeaseLost} if another holder has the wallet now.
 */
export async function writePlan(context: Context, lease: Lease, plan: ClaimPlan): Promise<Written> {
  return context.sql.begin(async (tx) => {
    if (plan.action === 'claim') return claimPlanned(context, tx, lease, plan)
    await failBlocked(context, tx, plan.payments)
    return { batch: null, hasMoved: false }
  })
}

/** Draws gas, claims the payments that have it, holds the others back, and defers what can't be settled. */
async function claimPlanned(
  context: Context,
  tx: Queryable,
  lease: Lease,
  { due: { lane, group, trigger }, payments, gas }: Extract<ClaimPlan, { action: 'claim' }>,
): Promise<Written> {
  const { token, feeRecipient } = group
  // Locks all payments before any source of their gas, as each transaction that ends a payment does.
  const ids = payments.map(({ id }) => id)
  const locked = await lockUnbatched(tx, ids)
  if (lane === 'direct' && locked.size < ids.length) return { batch: null, hasMoved: false }
  const draws = gas.draws.filter(({ request: { paymentId } }) => paymentId !== null && locked.has(paymentId))
  const isDrawn = draws.length > 0 ? await drawFromLedger(context, tx, draws) : []
  const holds = holdsAfterDraws({ ...gas, draws }, isDrawn)
  const paymentIds = ids.filter((id, index) => locked.has(id) && holds[index] === null)
  const moves = ids.flatMap((paymentId, index): PaymentMove[] => {
    const by = holds[index]
    return by && locked.has(paymentId) ? [{ paymentId, reason: 'held', by }] : []
  })
  const batchId = context.randomBytes32()
  const claim = { batchId, token, feeRecipient, trigger, lane, paymentIds }
  const { batch, unsettleable } =
    paymentIds.length > 0
      ? await claimPayments(tx, lease, claim, context.now())
      : { batch: null, unsettleable: [] }
  for (const paymentId of unsettleable) moves.push({ paymentId, reason: 'unsettleable' })
  await movePayments(context, tx, moves, null)
  if (lane === 'direct' && unsettleable.length > 0) {
    // A submission settles whole or not at all.
    const progress = await readProgress(tx, unsettleable)
    const cause = [...progress.values()].find(({ state }) => state !== 'settled')
    if (cause)
      await giveUpTogether(tx, paymentIds, { code: unsettleableCodes[cause.state], now: context.now() })
  }
  return { batch, hasMoved: moves.length > 0 }
}

/** Why a half can't be settled any more, by its state in the record: an open one has expired. */
const unsettleableCodes: Record<HalfState, string> = {
  settled: 'authorization_used',
  foreign_use: 'authorization_used',
  cancelled: 'authorization_cancelled',
  open: 'authorization_expired',
}

/** Fails payments of blocked payers unsent, and the submissions that they belong to. */
async function failBlocked(
  context: Context,
  tx: Queryable,
  payments: readonly BlockedPayment[],
): Promise<void> {
  const code = 'invalid_signature'
  const detail = 'payments of this payer passed the simulation and failed on chain'
  const moves = payments.map(({ paymentId }): PaymentMove => {
    return { paymentId, reason: 'failed', failure: { code, detail }, isFinal: true }
  })
  await movePayments(context, tx, moves, null)
  for (const key of new Set(payments.flatMap(({ submission }) => submission ?? [])))
    await giveUpSubmission(tx, key, { code, now: context.now() })
}
