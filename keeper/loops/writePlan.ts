import type { BatchRow } from '@tollkeeper/ledger/batches/batches'
import { claimPayments, lockUnbatched } from '@tollkeeper/ledger/batches/claims'
import type { Lease } from '@tollkeeper/ledger/batches/leases'
import type { Queryable } from '@tollkeeper/ledger/store/database'
import { holdsAfterDraws } from '../settler/gasPolicy.ts'
import type { ClaimPlan } from './choose.ts'
import type { Context } from './context.ts'
import { failUnsettleable } from './failUnsettleable.ts'
import { drawFromLedger } from './ledgerGas.ts'
import { countHolds, movePayments, type PaymentMove } from './movePayments.ts'

/** The result of a plan. `hasMoved` is true if payments have left the queue, so that reading it again finds other payments. */
type Written = { batch: BatchRow | null; hasMoved: boolean }

/** The result of a claim. `unsettleable` has the plan's payments that can no longer settle. */
type Claimed = { batch: BatchRow | null; moves: readonly PaymentMove[]; unsettleable: readonly string[] }

/**
 * Carries out a plan. One database transaction claims payments, draws gas money, and holds or defers other payments. Unsettleable
 * payments are finalized afterwards, for two reasons: their finalization may need locks that other transactions take before they draw
 * gas money, and a payment that can't be finalized must not prevent the claim.
 *
 * @throws {LeaseLost} if another holder has the wallet now.
 */
export async function writePlan(context: Context, lease: Lease, plan: ClaimPlan): Promise<Written> {
  const claimed = (await context.sql.begin((tx) => claimPlanned(context, tx, lease, plan))) as Claimed
  const { batch, moves, unsettleable } = claimed
  countHolds(context, moves)
  if (unsettleable.length === 0) return { batch, hasMoved: moves.length > 0 }
  return { batch, hasMoved: await failUnsettleable(context, plan, unsettleable) }
}

/** Draws gas money, claims the payments whose gas is covered, holds the others, and defers unsettleable ones. */
async function claimPlanned(
  context: Context,
  tx: Queryable,
  lease: Lease,
  { due: { lane, group, trigger }, payments, gas }: ClaimPlan,
): Promise<Claimed> {
  const { token, feeRecipient } = group
  // Locks all payments before any source of gas money, in the same order as each transaction that finalizes a payment.
  const ids = payments.map(({ id }) => id)
  const locked = await lockUnbatched(tx, ids)
  if (lane === 'submission' && locked.size < ids.length) return { batch: null, moves: [], unsettleable: [] }
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
  return { batch, moves, unsettleable }
}
