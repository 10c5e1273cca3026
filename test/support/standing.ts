import { voidPayment } from '@tollkeeper/ledger/outcomes/voids'
import { endPayments, type OutcomeKind, type Stage } from '@tollkeeper/ledger/queue/stages'
import type { Database } from '@tollkeeper/ledger/store/database'

// Where payments stand, as tests look at it and change it.

export type Standing = {
  /** Null: it is over. */
  stage: Stage | null
  /** Null: it is in the queue. */
  kind: OutcomeKind | null
  attempts: number
  failureCode: string | null
  failedAt: Date | null
  nextAttemptAt: Date | null
  /** Nothing of it can move any more. */
  isFinal: boolean
}

export async function standingsOf(
  sql: Database,
  payments: readonly { paymentId: string }[],
): Promise<Standing[]> {
  const rows = await sql<Standing[]>`
    select q.stage, o.kind, coalesce(q.attempts, o.attempts) as attempts,
      coalesce(o.code, (select code from settlement_failure f where f.payment_id = p.id and f.attempt = q.attempts))
        as "failureCode",
      case when o.kind = 'failed' then o.ended_at end as "failedAt", q.next_at as "nextAttemptAt",
      o.final_at is not null as "isFinal"
    from payment p left join queue q on q.payment_id = p.id left join outcome o on o.payment_id = p.id
    where p.id = any(${payments.map(({ paymentId }) => paymentId)}::text[])`
  if (rows.length !== payments.length) throw new Error(`${payments.length - rows.length} of them are unknown`)
  return rows
}

export async function standingOf(sql: Database, payment: { paymentId: string }): Promise<Standing> {
  const [standing] = await standingsOf(sql, [payment])
  if (!standing) throw new Error(`no payment ${payment.paymentId}`)
  return standing
}

/** How many of these have an end that is final. */
export async function countFinal(sql: Database, payments: readonly { paymentId: string }[]): Promise<number> {
  const rows = await sql`
    select from outcome
    where payment_id = any(${payments.map(({ paymentId }) => paymentId)}::text[]) and final_at is not null`
  return rows.length
}

/** Voids a payment, as its provider does. */
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

/** Gives up whatever waits, so that no later test finds it. */
export async function giveUpAll(sql: Database): Promise<void> {
  const rows = await sql<{ id: string }[]>`
    select payment_id as id from queue where stage in ('waiting', 'deferred', 'retrying', 'quarantined')`
  await giveUp(
    sql,
    rows.map(({ id }) => id),
  )
}

/** Fails payments, as if all their retries were used up. */
export async function giveUp(
  sql: Database,
  paymentIds: readonly string[],
  code = 'settlement_failed',
): Promise<void> {
  const endings = paymentIds.map(
    (paymentId) => ({ paymentId, kind: 'failed', code, isFinal: false }) as const,
  )
  await endPayments(sql, endings, new Date())
}

/** Lets a payment have run out long ago. Only a test changes what was accepted. */
export async function expire(sql: Database, { paymentId }: { paymentId: string }): Promise<void> {
  await sql.begin(async (tx) => {
    await tx`set local session_replication_role = replica`
    await tx`update payment set valid_before = 1 where id = ${paymentId}`
    await tx`update signed_authorization set valid_before = 1 where payment_id = ${paymentId}`
    await tx`update queue set valid_before = 1 where payment_id = ${paymentId}`
    await tx`update outcome set valid_before = 1 where payment_id = ${paymentId}`
  })
}
