import type { Database } from './database.ts'
import { halves } from './halves.ts'

export type RequeueOutcome =
  | 'requeued'
  | 'unknown'
  | 'forbidden'
  | 'not_failed'
  | 'voided'
  | 'not_settleable'
  | 'expired'

/** An authorization must be valid for this much longer, or the attempt isn't worth its gas. */
const minimumValiditySeconds = 60

/**
 * Puts a failed payment back into the queue, with all its retries anew, at its provider's wish.
 *
 * @param providerId null: of a refund, which is in no provider's sums.
 *
 * Only while something of it can still be settled: its provider half or, where that has arrived, its fee half.
 */
export async function requeuePayment(
  database: Database,
  { paymentId, providerId, now }: { paymentId: string; providerId: string | null; now: Date },
): Promise<RequeueOutcome> {
  return database.begin(async (sql): Promise<RequeueOutcome> => {
    const [payment] = await sql<
      { providerId: string | null; failedAt: Date | null; voidedAt: Date | null }[]
    >`
      select provider_id as "providerId", failed_at as "failedAt", voided_at as "voidedAt"
      from payment where id = ${paymentId} for update`
    if (payment === undefined) return 'unknown'
    if (payment.providerId !== providerId) return 'forbidden'
    if (payment.voidedAt !== null) return 'voided'
    if (payment.failedAt === null) return 'not_failed'
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
    await sql`
      update payment set failed_at = null, attempts = 0, first_failed_at = null, next_attempt_at = null,
        failure_code = null, concluded_at = null
      where id = ${paymentId}`
    return 'requeued'
  }) as Promise<RequeueOutcome>
}
