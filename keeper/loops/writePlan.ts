import type { BatchRow } from '@tollkeeper/ledger/batches/batches'
import { claimPayments, lockUnbatched } from '@tollkeeper/ledger/batches/claims'
import type { Lease } from '@tollkeeper/ledger/batches/leases'
import type { Queryable } from '@tollkeeper/ledger/store/database'
import { holdsAfterDraws } from '../settler/gasPolicy.ts'
import type { ClaimPlan } from './choose.ts'
import { concludeUnsettleable } from './concludeUnsettleable.ts'
import type { Context } from './context.ts'
import { drawFromLedger } from './ledgerGas.ts'
import { countHolds, movePayments, type PaymentMove } from './movePayments.ts'

/** What came of a plan. `hasMoved`: payments have left the queue, so it is worth another look. */
type Written = { batch: BatchRow | null; hasMoved: boolean }

/** What a claim has written. `unsettleable`: the payments of the plan that can't be settled any more. */
type Claimed = { batch: BatchRow | null; moves: readonly PaymentMove[]; unsettleable: readonly string[] }

/**
 * Carries out a plan. One database transaction claims, draws, holds back and defers. What can't be settled is concluded
 * afterwards: it may take locks that other transactions take before they draw gas, and a payment that can't be concluded must not
 * stop the claim.
 *
 * @throws {LeaseLost} if another holder has the wallet now.
 */
export async function writePlan(context: Context, lease: Lease, plan: ClaimPlan): Promise<Written> {
  const claimed = (await context.sql.begin((tx) => claimPlanned(context, tx, lease, plan))) as Claimed
  const { batch, moves, unsettleable } = claimed
  countHolds(context, moves)
  if (unsettleable.length === 0) return { batch, hasMoved: moves.length > 0 }
  return { batch, hasMoved: await concludeUnsettleable(context, plan, unsettleable) }
}

/** Draws gas, claims the payments that have it, holds the others back, and defers what can't be settled. */
async function claimPlanned(
  context: Context,
  tx: Queryable,
  lease: Lease,
  { due: { lane, group, trigger }, payments, gas }: ClaimPlan,
): Promise<Claimed> {
  const { token, feeRecipient } = group
  // Locks all payments before any source of their gas, as each transaction that ends a payment does.
  const ids = payments.map(({ id }) => id)
  const locked = await lockUnbatched(tx, ids)
  if (lane === 'direct' && locked.size < ids.length) return { batch: null, moves: [], unsettleable: [] }
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
