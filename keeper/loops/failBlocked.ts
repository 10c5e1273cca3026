import { failSubmission } from '@tollkeeper/ledger/acceptance/submissions'
import { type BlockedPayment, readBlocked } from '@tollkeeper/ledger/queue/isolation'
import { allOrEach } from '@tollkeeper/runtime/stepBack'
import { reportBadRow } from '../settings/startLoop.ts'
import type { Context } from './context.ts'
import { movePayments, type PaymentMove } from './movePayments.ts'

/** Maximum number of payments of blocked payers that are read at once. */
export const blockedAtOnce = 100
/** Maximum number of payments that one database transaction marks as failed. */
const failedAtOnce = 25

const code = 'invalid_signature'
const detail = 'payments of this payer passed the simulation and failed on chain'

/**
 * Marks waiting payments of blocked payers, and the submissions that contain such payments, as failed. None of them is sent. No wallet claims these
 * payments in the meantime. This function doesn't use a node, so it also works while the RPC is down. A payment that can't be failed is reported, and
 * tried again later.
 */
export async function failBlocked(context: Context): Promise<void> {
  const { sql, served } = context
  const { chainId, name } = served.network
  const blocked = await readBlocked(sql, { chainId, token: served.token }, blockedAtOnce)
  await allOrEach(
    blocked,
    (some) => failTogether(context, some),
    (error, { paymentId }) => reportBadRow(context, name)('fail-blocked', error, { paymentId }),
    { chunk: failedAtOnce, ask: () => sql`select 1` },
  )
}

async function failTogether(context: Context, payments: readonly BlockedPayment[]): Promise<void> {
  const moves = payments.map(({ paymentId }): PaymentMove => {
    return { paymentId, reason: 'failed', failure: { code, detail }, isFinal: true }
  })
  await context.sql.begin(async (tx) => {
    await movePayments(context, tx, moves, null)
    for (const key of new Set(payments.flatMap(({ submission }) => submission ?? [])))
      await failSubmission(tx, key, { code, now: context.now() })
  })
}
