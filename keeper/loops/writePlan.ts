import { readProgress } from '@tollkeeper/ledger/acceptance/facilitations'
import { giveUpTogether } from '@tollkeeper/ledger/acceptance/submissions'
import type { BatchRow } from '@tollkeeper/ledger/batches/batches'
import { claimPayments, lockUnbatched } from '@tollkeeper/ledger/batches/claims'
import type { Lease } from '@tollkeeper/ledger/batches/leases'
import type { HalfState } from '@tollkeeper/ledger/facts/halves'
import type { Queryable } from '@tollkeeper/ledger/store/database'
import { allOrEach } from '@tollkeeper/runtime/stepBack'
import { reportBadRow } from '../settings/startLoop.ts'
import { holdsAfterDraws } from '../settler/gasPolicy.ts'
import type { ClaimPlan } from './choose.ts'
import type { Context } from './context.ts'
import { drawFromLedger } from './ledgerGas.ts'
import { countHolds, movePayments, type PaymentMove, reconcileChosen } from './movePayments.ts'

/** What came of a plan. `hasMoved`: payments have left the queue, so it is worth another look. */
type Written = { batch: BatchRow | null; hasMoved: boolean }

/** What a claim has written. `unsettleable`: the payments of the plan that can't be settled any more. */
type Claimed = { batch: BatchRow | null; moves: readonly PaymentMove[]; unsettleable: readonly string[] }

/** Maximum number of payments that one transaction concludes. */
const concludedAtOnce = 25

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
  await conclude(context, unsettleable)
  if (plan.due.lane !== 'direct') return { batch, hasMoved: true }
  return { batch, hasMoved: await giveUpWhole(context, plan, unsettleable) }
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

/** Reconciles unsettleable payments with the record. One that fails is reported, and left to the reconciliation. */
async function conclude(context: Context, paymentIds: readonly string[]): Promise<void> {
  const { sql, served, memory } = context
  await allOrEach(
    paymentIds,
    (some) => sql.begin((tx) => reconcileChosen(context, tx, some)),
    (error, paymentId) => {
      memory.unconcluded.failed(paymentId)
      reportBadRow(context, served.network.name)('conclude', error, { paymentId })
    },
    { chunk: concludedAtOnce, ask: () => sql`select 1` },
  )
}

/**
 * Gives up a submission of which a part was settled otherwise than with it, or can't be settled: it settles whole or not at all.
 *
 * @returns whether it was given up, or goes on with what is left of it.
 */
async function giveUpWhole(
  context: Context,
  { payments }: ClaimPlan,
  unsettleable: readonly string[],
): Promise<boolean> {
  const { sql, served, now } = context
  const paymentIds = payments.map(({ id }) => id)
  const failed = await allOrEach(
    [paymentIds],
    () =>
      sql.begin(async (tx) => {
        const progress = await readProgress(tx, unsettleable)
        const cause = [...progress.values()].find(({ state }) => state !== 'settled')
        if (cause) await giveUpTogether(tx, paymentIds, { code: unsettleableCodes[cause.state], now: now() })
      }),
    (error) => reportBadRow(context, served.network.name)('give-up', error, { paymentIds }),
    { ask: () => sql`select 1` },
  )
  return failed.length === 0
}

/** Why a half can't be settled any more, by its state in the record: an open one has expired. */
const unsettleableCodes: Record<HalfState, string> = {
  settled: 'authorization_used',
  foreign_use: 'authorization_used',
  cancelled: 'authorization_cancelled',
  open: 'authorization_expired',
}
