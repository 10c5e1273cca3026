import { readProgress } from '@tollkeeper/ledger/acceptance/facilitations'
import { failTogether } from '@tollkeeper/ledger/acceptance/submissions'
import type { HalfState } from '@tollkeeper/ledger/facts/halves'
import type { Queryable } from '@tollkeeper/ledger/store/database'
import { allOrEach } from '@tollkeeper/runtime/stepBack'
import { reportBadRow } from '../settings/startLoop.ts'
import type { ClaimPlan } from './choose.ts'
import type { Context } from './context.ts'
import { reconcileChosen } from './movePayments.ts'

/** Maximum number of payments that one transaction finalizes. */
const maxFailedAtOnce = 25

/**
 * Reconciles a plan's unsettleable payments with the record. A payment that can't be finalized is reported, and `reconcilePayments`
 * tries it again later. A submission fails in the same database transaction, because it settles as a whole or not at all.
 *
 * @returns whether another read of the queue will find different payments
 */
export async function failUnsettleable(
  context: Context,
  { due, payments }: ClaimPlan,
  unsettleable: readonly string[],
): Promise<boolean> {
  const { sql, served, memory, now } = context
  const isWhole = due.lane === 'submission'
  const failed = await allOrEach(
    unsettleable,
    (some) =>
      sql.begin(async (tx) => {
        await reconcileChosen(context, tx, some)
        if (isWhole) await failWhole(tx, { payments, unsettleable, now: now() })
      }),
    (error, paymentId) => {
      memory.unfinalized.failed(paymentId)
      reportBadRow(context, served.network.name)('finalize', error, { paymentId })
    },
    { chunk: isWhole ? unsettleable.length : maxFailedAtOnce, ask: () => sql`select 1` },
  )
  // If failing a submission didn't work, the next read would find the same submission again.
  return !isWhole || failed.length === 0
}

/**
 * Fails a submission if one of its unsettleable payments was cancelled, used elsewhere or has expired. If all of its unsettleable payments have
 * already settled, the submission continues with its other payments.
 */
async function failWhole(
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
  await failTogether(tx, ids, { code: unsettleableCodes[cause.state], now })
}

/** The code for an unsettleable authorization, by its state in the record. An authorization that is still open has expired. */
const unsettleableCodes: Record<HalfState, string> = {
  settled: 'authorization_used',
  foreign_use: 'authorization_used',
  cancelled: 'authorization_cancelled',
  open: 'authorization_expired',
}
