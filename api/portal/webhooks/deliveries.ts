import type { Database, Queryable } from '#ledger/database'
import { newId } from '../../identifiers.ts'
import type { WebhookEvent } from './events.ts'

/** A message that this process has claimed and must send now. */
export type ClaimedDelivery = {
  id: string
  /** This sending's number, from 1. */
  attempt: number
  messageId: string
  webhookId: string
  url: string
  /** The current secret first, then the one before while it's good. */
  secrets: string[]
  event: WebhookEvent
  paymentId: string | null
  txHash: string | null
  data: Record<string, unknown>
  /** When it happened. */
  createdAt: Date
}

export type AttemptResult = {
  endedAt: Date
  httpStatus: number | null
  /** Null where it counts as received. */
  failure: string | null
  detail: string | null
  response: string | null
}

/**
 * Makes deliveries out of outbox rows, one for each receiver that wants the event.
 *
 * @returns how many outbox rows were taken, at most `limit`
 */
export async function dispatchOutbox(
  sql: Database,
  { now, limit }: { now: Date; limit: number },
): Promise<number> {
  return sql.begin(async (tx) => {
    const wanted = await tx<{ outboxId: bigint; webhookId: string | null }[]>`
      with fresh as (
        select id, provider_id, event from outbox where dispatched_at is null
        order by id limit ${limit} for update skip locked
      ), taken as (
        update outbox set dispatched_at = ${now} where id in (select id from fresh)
      )
      select fresh.id as "outboxId", w.id as "webhookId"
      from fresh left join webhook w on w.provider_id = fresh.provider_id and fresh.event = any(w.events)
        and w.deleted_at is null and w.disabled_at is null`
    const deliveries = wanted.filter((row) => row.webhookId !== null)
    if (deliveries.length > 0) {
      // The message id is made of what names the event, so it's the same wherever and whenever it is made.
      await tx`
        insert into webhook_delivery (id, outbox_id, webhook_id, message_id, next_attempt_at, created_at)
        select pair.id, o.id, pair.webhook_id,
          'msg_' || left(encode(sha256(convert_to(concat_ws('|', o.event, o.provider_id, o.payment_id,
            coalesce(o.tx_hash, o.id::text), nullif(o.occurrence, 1), o.data ->> 'batchId'), 'UTF8')), 'hex'), 32),
          ${now}, date_trunc('milliseconds', o.created_at)
        from unnest(
          ${deliveries.map(() => newId('whd'))}::text[],
          ${deliveries.map((row) => row.outboxId.toString())}::bigint[],
          ${deliveries.map((row) => row.webhookId)}::text[]
        ) as pair (id, outbox_id, webhook_id)
        join outbox o on o.id = pair.outbox_id
        on conflict do nothing`
    }
    return new Set(wanted.map((row) => row.outboxId)).size
  })
}

/**
 * Claims messages that are due and writes down that they are being sent, before any is.
 *
 * @param leaseMs After it a message is due again, unless {@link recordAttempt} has said what came of it.
 * @param perWebhook So that a slow receiver can't keep all senders busy.
 * @param busyWebhooks Receivers that have as many under way already.
 */
export async function claimDeliveries(
  sql: Queryable,
  {
    now,
    leaseMs,
    limit,
    perWebhook,
    busyWebhooks,
  }: { now: Date; leaseMs: number; limit: number; perWebhook: number; busyWebhooks: string[] },
): Promise<ClaimedDelivery[]> {
  return sql<ClaimedDelivery[]>`
    with due as (
      select id, webhook_id, next_attempt_at from webhook_delivery
      where next_attempt_at <= ${now} and webhook_id <> all(${busyWebhooks}::text[])
      order by next_attempt_at limit 500
    ), ranked as (
      select id, next_attempt_at, row_number() over (partition by webhook_id order by next_attempt_at) as place
      from due
    ), locked as (
      select d.id from webhook_delivery d
      join (select id from ranked where place <= ${perWebhook} order by next_attempt_at limit ${limit}) r on r.id = d.id
      where d.next_attempt_at <= ${now}
      for update of d skip locked
    ), claimed as (
      update webhook_delivery d
      set attempts = attempts + 1, next_attempt_at = ${new Date(now.getTime() + leaseMs)}
      from locked where d.id = locked.id
      returning d.id, d.attempts, d.message_id, d.webhook_id, d.outbox_id
    ), started as (
      insert into webhook_attempt (delivery_id, attempt, started_at) select id, attempts, ${now} from claimed
    )
    select claimed.id, claimed.attempts as attempt, claimed.message_id as "messageId",
      claimed.webhook_id as "webhookId", w.url,
      array_remove(array[w.secret, case when w.previous_secret_expires_at > ${now} then w.previous_secret end], null)
        as secrets,
      o.event, o.payment_id as "paymentId", o.tx_hash as "txHash", o.data, o.created_at as "createdAt"
    from claimed join webhook w on w.id = claimed.webhook_id join outbox o on o.id = claimed.outbox_id`
}

/**
 * Writes down what came of a sending and when the next one is due, if any.
 *
 * A sender that outlived its lease still tells what it saw, but no longer moves the schedule: another one holds it.
 */
export async function recordAttempt(
  sql: Queryable,
  delivery: Pick<ClaimedDelivery, 'id' | 'attempt'>,
  result: AttemptResult,
  nextAttemptAt: Date | null,
): Promise<void> {
  const deliveredAt = result.failure === null ? result.endedAt : null
  await sql`
    with attempt as (
      update webhook_attempt set ended_at = ${result.endedAt}, status = ${result.httpStatus},
        failure = ${result.failure}, detail = ${result.detail}, response = ${result.response}
      where delivery_id = ${delivery.id} and attempt = ${delivery.attempt}
    )
    update webhook_delivery set
      delivered_at = coalesce(delivered_at, ${deliveredAt}),
      next_attempt_at = case when attempts = ${delivery.attempt} then ${nextAttemptAt} else next_attempt_at end
    where id = ${delivery.id}`
}

/** Stops sending to a receiver that answered 410 Gone. */
export async function disableWebhook(sql: Queryable, webhookId: string, now: Date): Promise<void> {
  await sql`
    with disabled as (update webhook set disabled_at = ${now} where id = ${webhookId} and disabled_at is null)
    update webhook_delivery set next_attempt_at = null
    where webhook_id = ${webhookId} and next_attempt_at is not null`
}

/** What waits: for the metrics. */
export async function deliveryBacklog(
  sql: Queryable,
): Promise<{ pending: number; oldestDueAt: Date | null }> {
  const [row] = await sql<{ pending: number; oldestDueAt: Date | null }[]>`
    select (
        (select count(*) from webhook_delivery where next_attempt_at is not null)
        + (select count(*) from outbox where dispatched_at is null)
      )::int as pending,
      least(
        (select min(next_attempt_at) from webhook_delivery where next_attempt_at is not null),
        (select created_at from outbox where dispatched_at is null order by id limit 1)
      ) as "oldestDueAt"`
  return row ?? { pending: 0, oldestDueAt: null }
}
