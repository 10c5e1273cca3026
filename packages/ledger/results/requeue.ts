import { halves } from '../facts/halves.ts'
import { type PaymentResult, reopenPayments } from '../queue/stages.ts'
import type { Database } from '../store/database.ts'

export type RequeueOutcome =
  | 'requeued'
  | 'unknown'
  | 'forbidden'
  | 'not_failed'
  | 'voided'
  | 'not_settleable'
  | 'expired'

/** Minimum remaining validity in seconds for which an attempt is worth its gas. */
const minimumValiditySeconds = 60

/**
 * Puts a failed payment back into the queue, with all its retries.
 *
 * @param providerId the provider that the payment must belong to; null for a refund, which is in no provider's sums; undefined for the
 * operator, who may requeue any.
 *
 * This works only while a part can still be settled: the provider's half or, once that has arrived, the fee.
 */
export async function requeuePayment(
  database: Database,
  { paymentId, providerId, now }: { paymentId: string; providerId: string | null | undefined; now: Date },
): Promise<RequeueOutcome> {
  return database.begin(async (sql): Promise<RequeueOutcome> => {
    const [payment] = await sql<{ providerId: string | null }[]>`
      select provider_id as "providerId" from payment where id = ${paymentId}`
    if (payment === undefined) return 'unknown'
    if (providerId !== undefined && payment.providerId !== providerId) return 'forbidden'
    const [outcome] = await sql<{ kind: PaymentResult }[]>`
      select kind from payment_result where payment_id = ${paymentId} for update`
    if (outcome?.kind === 'voided') return 'voided'
    if (outcome?.kind !== 'failed') return 'not_failed'
    const [half] = await sql<{ validBefore: bigint }[]>`
      select valid_before as "validBefore" from ${halves(sql)} h
      where payment_id = ${paymentId} and state = 'open'
        and not exists (
          select from ${halves(sql)} first
          where first.payment_id = ${paymentId} and first.half = 0 and first.state in ('cancelled', 'foreign_use')
        )
      order by half limit 1`
    if (half === undefined) return 'not_settleable'
    if (Number(half.validBefore) < now.getTime() / 1000 + minimumValiditySeconds) return 'expired'
    await reopenPayments(sql, [paymentId], 'forgotten')
    return 'requeued'
  }) as Promise<RequeueOutcome>
}
