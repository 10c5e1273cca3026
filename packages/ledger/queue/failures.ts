import type { Queryable } from '../store/database.ts'
import { decideRetry, notifyAfterAttempts } from './retry.ts'
import { endPayments, isBatchStage, moves, type Stage } from './stages.ts'

export type PaymentFailure = {
  paymentId: string
  batchId: bigint | null
  code: string
  detail: string
  /** True if no later attempt can succeed, because the nonce was cancelled or used by another authorization. */
  isFinal: boolean
}

/**
 * Counts a failed attempt that was the payment's own fault, schedules a retry or fails the payment, and notifies the provider if necessary.
 *
 * @returns the number of attempts so far; null if the payment can't fail any more, because it has a result other than `spent`.
 */
export async function recordFailure(
  sql: Queryable,
  failure: PaymentFailure,
  { now }: { now: Date },
): Promise<number | null> {
  const { paymentId, batchId, code, detail } = failure
  const [payment] = await sql<
    {
      attempts: number
      firstFailedAt: Date | null
      validBefore: bigint
      urgentAt: bigint
      isSubmission: boolean
      stage: Stage | null
      dueAt: Date | null
    }[]
  >`
    select coalesce(q.attempts, o.attempts) as attempts, q.first_failed_at as "firstFailedAt", q.stage,
      q.due_at as "dueAt", p.source = 'submission' as "isSubmission", p.valid_before as "validBefore",
      coalesce(q.urgent_at, p.valid_before) as "urgentAt"
    from payment p
    left join (select * from queue where payment_id = ${paymentId} for update) q on true
    left join (select * from payment_result where payment_id = ${paymentId} and kind = 'spent' for update) o on true
    where p.id = ${paymentId} and (q.payment_id is not null or o.payment_id is not null)`
  if (!payment) return null
  const attempts = Math.min(payment.attempts + 1, 6)
  const firstFailedAt = payment.firstFailedAt ?? now
  // A waiting caller receives the failure as its answer, so the payment must not be settled later.
  const isFinal = failure.isFinal || payment.dueAt !== null || payment.isSubmission
  const decision = isFinal
    ? ({ status: 'failed' } as const)
    : decideRetry({ ...payment, attempts, firstFailedAt, now })
  // If the payment is still in a batch, it is finalized or released for another attempt together with the batch.
  const nextAttemptAt = decision.status === 'retry' ? decision.at : isBatchStage(payment.stage) ? now : null
  await sql`
    insert into settlement_failure (payment_id, attempt, batch_id, code, detail, failed_at, next_attempt_at)
    values (${paymentId}, ${attempts}, ${batchId}, ${code}, ${detail.slice(0, 500)}, ${now}, ${nextAttemptAt})
    on conflict (payment_id, attempt) do update set batch_id = excluded.batch_id, code = excluded.code,
      detail = excluded.detail, failed_at = excluded.failed_at, next_attempt_at = excluded.next_attempt_at`
  await sql`
    update queue set attempts = ${attempts}, first_failed_at = ${firstFailedAt}, next_at = ${nextAttemptAt ?? now},
      ${moves(sql).toRetrying}
    where payment_id = ${paymentId}`
  await sql`update payment_result set attempts = ${attempts} where payment_id = ${paymentId} and kind = 'spent'`
  if (nextAttemptAt === null)
    await endPayments(sql, [{ paymentId, kind: 'failed', code, isFinal: false }], now)
  const event = nextAttemptAt === null ? 'failed' : attempts === notifyAfterAttempts ? 'failing' : null
  if (event) {
    // Don't notify a provider who was paid in full: only the platform's fee failed. A payment that was requeued by hand may fail again,
    // which is another occurrence of the event.
    await sql`
      insert into outbox (event, provider_id, payment_id, data, occurrence)
      select told.event, told.provider_id, ${paymentId},
        told.data || ${sql.json({ code, attempts, nextAttemptAt: nextAttemptAt?.toISOString() ?? null })}::jsonb,
        (select coalesce(max(occurrence), 0) + 1 from outbox o where o.event = told.event and o.payment_id = ${paymentId})
      from (
        select case share.subject when 'refund' then 'refund.' else 'settlement.' end || ${event}::text as event,
          share.provider_id, share.data
        from event_shares(${paymentId}) share where share.settled_net < share.net
      ) told`
  }
  return attempts
}

/**
 * Reverts the failures that a batch's transaction caused, after a reorg dropped that transaction. Payments that failed permanently because
 * of them stay failed.
 */
export async function takeFailuresBack(sql: Queryable, batchId: bigint): Promise<void> {
  await sql`
    with undone as (
      delete from settlement_failure f using queue q
      where f.batch_id = ${batchId} and q.payment_id = f.payment_id and q.attempts = f.attempt
      returning f.payment_id
    )
    update queue q set attempts = attempts - 1,
      first_failed_at = case when attempts > 1 then first_failed_at end,
      ${moves(sql).toUntried}
    from undone where q.payment_id = undone.payment_id`
}
