import { endPayments, type PaymentResult, type Stage } from '@tollkeeper/ledger/queue/stages'
import { voidPayment } from '@tollkeeper/ledger/results/voids'
import type { Database } from '@tollkeeper/ledger/store/database'

// Reads and changes the position of payments for tests.

export type PaymentPosition = {
  /** Null if the payment is no longer in the queue. */
  stage: Stage | null
  /** Null if the payment is in the queue. */
  kind: PaymentResult | null
  attempts: number
  failureCode: string | null
  failedAt: Date | null
  nextAttemptAt: Date | null
  /** Whether the payment's authorizations can no longer move. */
  isFinal: boolean
}

export async function positionsOf(
  sql: Database,
  payments: readonly { paymentId: string }[],
): Promise<PaymentPosition[]> {
  const rows = await sql<PaymentPosition[]>`
    select q.stage, o.kind, coalesce(q.attempts, o.attempts) as attempts,
      coalesce(o.code, (select code from settlement_failure f where f.payment_id = p.id and f.attempt = q.attempts))
        as "failureCode",
      case when o.kind = 'failed' then o.ended_at end as "failedAt", q.next_at as "nextAttemptAt",
      o.final_at is not null as "isFinal"
    from payment p left join queue q on q.payment_id = p.id left join payment_result o on o.payment_id = p.id
    where p.id = any(${payments.map(({ paymentId }) => paymentId)}::text[])`
  if (rows.length !== payments.length)
    throw new Error(`${payments.length - rows.length} of the payments are unknown`)
  return rows
}

export async function positionOf(sql: Database, payment: { paymentId: string }): Promise<PaymentPosition> {
  const [position] = await positionsOf(sql, [payment])
  if (!position) throw new Error(`no payment ${payment.paymentId}`)
  return position
}

/** Returns how many of these payments have a final result. */
export async function countFinal(sql: Database, payments: readonly { paymentId: string }[]): Promise<number> {
  const rows = await sql`
    select from payment_result
    where payment_id = any(${payments.map(({ paymentId }) => paymentId)}::text[]) and final_at is not null`
  return rows.length
}

/** Voids a payment, as its provider would. */
export async function voidNow(sql: Database, { paymentId }: { paymentId: string }): Promise<void> {
  const [payment] = await sql<{ providerId: string }[]>`
    select provider_id as "providerId" from payment where id = ${paymentId}`
  const outcome = await voidPayment(sql, {
    paymentId,
    providerId: payment?.providerId ?? '',
    now: new Date(),
  })
  if (outcome !== 'voided') throw new Error(`the payment was ${outcome}`)
}

/** Fails all waiting payments, so that no later test finds them. */
export async function failAll(sql: Database): Promise<void> {
  const rows = await sql<{ id: string }[]>`
    select payment_id as id from queue where stage in ('waiting', 'deferred', 'retrying', 'isolated')`
  await failPayments(
    sql,
    rows.map(({ id }) => id),
  )
}

/** Fails payments, as if all their retries were used up. */
export async function failPayments(
  sql: Database,
  paymentIds: readonly string[],
  code = 'settlement_failed',
): Promise<void> {
  const endings = paymentIds.map(
    (paymentId) => ({ paymentId, kind: 'failed', code, isFinal: false }) as const,
  )
  await endPayments(sql, endings, new Date())
}

/** Changes an accepted payment so that it expired long ago. Only a test may do this. */
export async function expire(sql: Database, { paymentId }: { paymentId: string }): Promise<void> {
  await sql.begin(async (tx) => {
    await tx`set local session_replication_role = replica`
    await tx`update payment set valid_before = 1 where id = ${paymentId}`
    await tx`update signed_authorization set valid_before = 1 where payment_id = ${paymentId}`
    await tx`update queue set valid_before = 1 where payment_id = ${paymentId}`
    await tx`update payment_result set valid_before = 1 where payment_id = ${paymentId}`
  })
}
