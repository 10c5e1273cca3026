import { giveUpSubmission } from '@tollkeeper/ledger/acceptance/submissions'
import { type BlockedPayment, readBlocked } from '@tollkeeper/ledger/queue/quarantine'
import { allOrEach } from '@tollkeeper/runtime/stepBack'
import { reportBadRow } from '../settings/startLoop.ts'
import type { Context } from './context.ts'
import { movePayments, type PaymentMove } from './movePayments.ts'

/** Maximum number of payments of blocked payers that one look reads. */
export const blockedAtOnce = 100
/** Maximum number of payments that one transaction fails. */
const failedAtOnce = 25

const code = 'invalid_signature'
const detail = 'payments of this payer passed the simulation and failed on chain'

/**
 * Fails waiting payments of blocked payers unsent, and the submissions that they belong to. It asks no node, so it also works while the
 * RPC is down. No wallet claims them meanwhile. One that can't be failed is reported, and tried again the next time.
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
      await giveUpSubmission(tx, key, { code, now: context.now() })
  })
}
