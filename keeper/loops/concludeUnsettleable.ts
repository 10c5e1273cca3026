import { readProgress } from '@tollkeeper/ledger/acceptance/facilitations'
import { giveUpTogether } from '@tollkeeper/ledger/acceptance/submissions'
import type { HalfState } from '@tollkeeper/ledger/facts/halves'
import type { Queryable } from '@tollkeeper/ledger/store/database'
import { allOrEach } from '@tollkeeper/runtime/stepBack'
import { reportBadRow } from '../settings/startLoop.ts'
import type { ClaimPlan } from './choose.ts'
import type { Context } from './context.ts'
import { reconcileChosen } from './movePayments.ts'

/** Maximum number of payments that one transaction concludes. */
const concludedAtOnce = 25

/**
 * Reconciles those payments of a plan with the record that can't be settled any more. A payment that can't be concluded is reported, and
 * left to the reconciliation. A submission is given up in the same transaction: it settles whole or not at all.
 *
 * @returns whether another look at the queue shows something else.
 */
export async function concludeUnsettleable(
  context: Context,
  { due, payments }: ClaimPlan,
  unsettleable: readonly string[],
): Promise<boolean> {
  const { sql, served, memory, now } = context
  const isWhole = due.lane === 'direct'
  const failed = await allOrEach(
    unsettleable,
    (some) =>
      sql.begin(async (tx) => {
        await reconcileChosen(context, tx, some)
        if (isWhole) await giveUpWhole(tx, { payments, unsettleable, now: now() })
      }),
    (error, paymentId) => {
      memory.unconcluded.failed(paymentId)
      reportBadRow(context, served.network.name)('conclude', error, { paymentId })
    },
    { chunk: isWhole ? unsettleable.length : concludedAtOnce, ask: () => sql`select 1` },
  )
  // A submission that is still the oldest one would be found again.
  return !isWhole || failed.length === 0
}

/** Gives up a submission, unless its unsettleable payments have settled: then it continues with the others. */
async function giveUpWhole(
  tx: Queryable,
  {
    payments,
    unsettleable,
    now,
  }: Pick<ClaimPlan, 'payments'> & { unsettleable: readonly string[]; now: Date },
): Promise<void> {
  const progress = await readProgress(tx, unsettleable)
  const cause = [...progress.values()].find(({ state }) => state !== 'settled')
  if (cause === undefined) return
  const ids = payments.map(({ id }) => id)
  await giveUpTogether(tx, ids, { code: unsettleableCodes[cause.state], now })
}

/** Why a half can't be settled any more, by its state in the record: an open one has expired. */
const unsettleableCodes: Record<HalfState, string> = {
  settled: 'authorization_used',
  foreign_use: 'authorization_used',
  cancelled: 'authorization_cancelled',
  open: 'authorization_expired',
}
