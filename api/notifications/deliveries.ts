import type { Database, Queryable } from '@tollkeeper/ledger/store/database'
import { newId } from '@tollkeeper/ledger/store/identifiers'
import { lifetimeMs, pauseMs } from './backoff.ts'
import type { WebhookEvent } from './events.ts'
import { mailedEvents, noticeEvents } from './notices.ts'

/** A message that this process has claimed and must send now. */
export type ClaimedDelivery = {
  id: string
  /** Number of this sending, starting at 1. */
  attempt: number
  messageId: string
  webhookId: string
  providerId: string
  /** Whether the receiver answered the last message quickly (within `soonMs` of the delivery loop). */
  answersSoon: boolean
  url: string
  /** The current secret first, then the previous one while it is valid. */
  secrets: string[]
  event: WebhookEvent
  paymentId: string | null
  txHash: string | null
  data: Record<string, unknown>
  /** When the event happened. */
  createdAt: Date
}

export type AttemptResult = {
  endedAt: Date
  httpStatus: number | null
  /** Null if the message counts as received. */
  failure: string | null
  detail: string | null
  response: string | null
}

/**
 * Turns outbox rows into deliveries, one for each receiver that subscribes to the event, and into notices for mail.
 *
 * @param except outbox rows to leave for later
 * @returns how many outbox rows were taken, at most `limit`
 */
export async function dispatchOutbox(
  sql: Database,
  { now, limit, except = [] }: { now: Date; limit: number; except?: readonly bigint[] },
): Promise<number> {
  return sql.begin(async (tx) => {
    const wanted = await tx<{ outboxId: bigint; event: string; webhookId: string | null }[]>`
      with fresh as (
        select id, provider_id, event from outbox
        where dispatched_at is null and id <> all(${except.map(String)}::bigint[])
        order by id limit ${limit} for update skip locked
      ), taken as (
        update outbox set dispatched_at = ${now} where id in (select id from fresh)
      )
      select fresh.id as "outboxId", fresh.event, w.id as "webhookId"
      from fresh left join webhook w on w.provider_id = fresh.provider_id and fresh.event = any(w.events)
        and w.deleted_at is null and w.disabled_at is null`
    const deliveries = wanted.filter((row) => row.webhookId !== null)
    if (deliveries.length > 0) {
      // The message id is derived from the fields that identify the event, so it is the same in every process and at any time.
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
    const mailed = wanted.filter(({ event }) => (mailedEvents as readonly string[]).includes(event))
    if (mailed.length > 0)
      await noticeEvents(
        tx,
        mailed.map(({ outboxId }) => outboxId),
        now,
      )
    return new Set(wanted.map((row) => row.outboxId)).size
  })
}

/** Reads the oldest outbox row that isn't dispatched, ignoring those in `except`. */
export async function readOldestMessage(
  sql: Queryable,
  except: readonly bigint[],
): Promise<bigint | undefined> {
  const [row] = await sql<{ id: bigint }[]>`
    select id from outbox where dispatched_at is null and id <> all(${except.map(String)}::bigint[]) order by id limit 1
    for update skip locked`
  return row?.id
}

/** A sending in progress in this process. */
export type Sending = Pick<ClaimedDelivery, 'webhookId' | 'providerId' | 'answersSoon'>

/** Maximum numbers of concurrent sendings in one process. */
export type SenderShares = {
  senders: number
  /** To one receiver. A receiver that doesn't answer soon, or was never tried, gets one message at a time. */
  perWebhook: number
  /** To all receivers of one provider. */
  perProvider: number
  /** To all receivers that don't answer soon, taken together. The other senders are reserved for receivers that answer soon. */
  slow: number
  /** To slow receivers of one provider. */
  slowPerProvider: number
}

export function senderShares(senders: number): SenderShares {
  const half = Math.max(1, Math.floor(senders / 2))
  return {
    senders,
    perWebhook: Math.max(1, Math.floor(senders / 4)),
    perProvider: half,
    slow: half,
    slowPerProvider: Math.max(1, Math.floor(senders / 8)),
  }
}

/**
 * Claims messages that are due, and stores that they are being sent. The caller then sends them.
 *
 * Providers take turns, starting with the one with the fewest sendings in progress, so that no provider waits for another provider's many
 * messages. Receivers that don't answer soon share a part of the senders.
 *
 * @param leaseMs time after which a message is due again, unless {@link recordAttempt} has stored its result.
 */
export async function claimDeliveries(
  sql: Queryable,
  {
    now,
    leaseMs,
    shares,
    underWay,
  }: { now: Date; leaseMs: number; shares: SenderShares; underWay: Sending[] },
): Promise<ClaimedDelivery[]> {
  const slowUnderWay = underWay.filter(({ answersSoon }) => !answersSoon).length
  return sql<ClaimedDelivery[]>`
    with recursive waiting as (
      -- Each receiver that has messages, by jumping from one to the next in the index.
      (select webhook_id from webhook_delivery where next_attempt_at is not null order by webhook_id limit 1)
      union all
      select (select d.webhook_id from webhook_delivery d
        where d.next_attempt_at is not null and d.webhook_id > waiting.webhook_id order by d.webhook_id limit 1)
      from waiting where waiting.webhook_id is not null
    ), busy as (
      select * from unnest(${underWay.map(({ webhookId }) => webhookId)}::text[],
        ${underWay.map(({ providerId }) => providerId)}::text[],
        ${underWay.map(({ answersSoon }) => String(answersSoon))}::text[]::boolean[]) as busy (webhook_id, provider_id, answers_soon)
    ), receiver as (
      select w.id, w.provider_id, w.answers_soon,
        (case when w.answers_soon then ${shares.perWebhook}::int else 1 end)
          - (select count(*) from busy where busy.webhook_id = w.id) as free
      from waiting join webhook w on w.id = waiting.webhook_id
      where w.paused_until is null or w.paused_until <= ${now}
    ), candidate as (
      select d.id, d.next_attempt_at, r.answers_soon,
        row_number() over (partition by r.provider_id order by d.place, d.next_attempt_at)
          + (select count(*) from busy where busy.provider_id = r.provider_id) as place,
        row_number() over (partition by r.provider_id, r.answers_soon order by d.place, d.next_attempt_at)
          + (select count(*) from busy where busy.provider_id = r.provider_id and busy.answers_soon = r.answers_soon)
          as place_of_kind
      from receiver r cross join lateral (
        select d.id, d.next_attempt_at, row_number() over (order by d.next_attempt_at) as place
        from webhook_delivery d where d.webhook_id = r.id and d.next_attempt_at <= ${now}
        order by d.next_attempt_at limit greatest(r.free, 0)
      ) d
    ), fair as (
      select id, next_attempt_at, answers_soon, place,
        row_number() over (partition by answers_soon order by place, next_attempt_at) as turn
      from candidate
      where place <= ${shares.perProvider} and (answers_soon or place_of_kind <= ${shares.slowPerProvider})
    ), locked as (
      select d.id from webhook_delivery d join (
        select id from fair where answers_soon or turn <= ${shares.slow - slowUnderWay}
        order by place, next_attempt_at limit ${Math.max(0, shares.senders - underWay.length)}
      ) f on f.id = d.id
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
      claimed.webhook_id as "webhookId", w.provider_id as "providerId", w.answers_soon as "answersSoon", w.url,
      array_remove(array[w.secret, case when w.previous_secret_expires_at > ${now} then w.previous_secret end], null)
        as secrets,
      o.event, o.payment_id as "paymentId", o.tx_hash as "txHash", o.data, o.created_at as "createdAt"
    from claimed join webhook w on w.id = claimed.webhook_id join outbox o on o.id = claimed.outbox_id`
}

/**
 * Stores the result of a sending, and when the next one is due, if any.
 *
 * A sender whose lease has expired still stores its result, but no longer changes the schedule, because another sender now holds the
 * message.
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

export type ReceiverResult = { startedAt: Date; endedAt: Date; isAnswered: boolean; answersSoon: boolean }

/**
 * Stores whether a webhook's receiver answered the latest attempt to send it a message. If it didn't, sending to it pauses, and messages to it that
 * are too old fail.
 *
 * `silences` counts attempts without an answer, and each one makes the next pause longer. Concurrent attempts count only once, because an attempt
 * that began before the end of the last pause isn't counted.
 */
export async function recordReceiver(
  sql: Queryable,
  webhookId: string,
  { startedAt, endedAt, isAnswered, answersSoon }: ReceiverResult,
): Promise<void> {
  if (isAnswered) {
    await sql`
      update webhook set answers_soon = ${answersSoon}, silences = 0, paused_until = null
      where id = ${webhookId} and (answers_soon <> ${answersSoon} or silences > 0)`
    return
  }
  const [receiver] = await sql<{ silences: number }[]>`
    update webhook set answers_soon = false, silences = least(silences + 1, 100)
    where id = ${webhookId} and (paused_until is null or paused_until <= ${startedAt})
    returning silences`
  if (receiver === undefined) return
  await sql`
    with expired as (
      update webhook_delivery set next_attempt_at = null
      where webhook_id = ${webhookId} and next_attempt_at <= ${endedAt}
        and created_at < ${new Date(endedAt.getTime() - lifetimeMs)}
    )
    update webhook set paused_until = ${new Date(endedAt.getTime() + pauseMs(receiver.silences))}
    where id = ${webhookId}`
}

/** Stops sending to a receiver that answered 410 Gone, and notifies its provider. */
export async function disableWebhook(sql: Queryable, webhookId: string, now: Date): Promise<void> {
  await sql`
    with disabled as (
      update webhook set disabled_at = ${now} where id = ${webhookId} and disabled_at is null
      returning id, provider_id, url
    ), written as (
      insert into outbox (event, provider_id, data)
      select 'webhook.disabled', provider_id, jsonb_build_object('webhookId', id, 'url', url) from disabled
    )
    update webhook_delivery set next_attempt_at = null
    where webhook_id = ${webhookId} and next_attempt_at is not null`
}

/** Returns how many messages wait, and since when the oldest could have been sent, for the metrics. */
export async function deliveryBacklog(
  sql: Queryable,
): Promise<{ pending: number; oldestDueAt: Date | null }> {
  const [row] = await sql<{ pending: number; oldestDueAt: Date | null }[]>`
    select (
        (select count(*) from webhook_delivery where next_attempt_at is not null)
        + (select count(*) from outbox where dispatched_at is null)
      )::int as pending,
      least(
        (select min(greatest(d.next_attempt_at, w.paused_until))
          from webhook_delivery d join webhook w on w.id = d.webhook_id where d.next_attempt_at is not null),
        (select created_at from outbox where dispatched_at is null order by id limit 1)
      ) as "oldestDueAt"`
  return row ?? { pending: 0, oldestDueAt: null }
}
