import type { Database, Queryable, Transaction } from '@tollkeeper/ledger/store/database'

/** The events that are also mailed, because the provider has to act and may not notice them otherwise. */
export const mailedEvents = [
  'settlement.failing',
  'settlement.failed',
  'refund.failing',
  'refund.failed',
  'webhook.disabled',
] as const

/** Time in ms for which events are collected before the first mail about them. */
const gatherMs = 60_000
/** Minimum time in ms between two mails to one provider. */
const pauseMs = 60 * 60_000
/** Maximum number of events in one mail. */
const mostNotices = 1_000

export type Notice = {
  outboxId: bigint
  event: (typeof mailedEvents)[number]
  paymentId: string | null
  data: Record<string, unknown>
}

/** A mail that this process has claimed and must send now. */
export type ClaimedMail = { providerId: string; address: string; attempt: number }

/**
 * Stores that a contact is confirmed: its owner reads the mail sent to it. Events from before the confirmation, and events for an earlier contact,
 * aren't mailed to it.
 */
export async function confirmContact(
  sql: Transaction,
  { providerId, address, now }: { providerId: string; address: string; now: Date },
): Promise<void> {
  const changed = await sql`
    insert into confirmed_contact as c (provider_id, address, confirmed_at) values (${providerId}, ${address}, ${now})
    on conflict (provider_id) do update
      set address = excluded.address, confirmed_at = excluded.confirmed_at, next_attempt_at = null, attempts = 0
      where c.address <> excluded.address
    returning 1`
  if (changed.length > 0) await sql`delete from mail_notice where provider_id = ${providerId}`
}

/** Creates notices from outbox rows for providers with a confirmed contact, and schedules their mail. */
export async function noticeEvents(sql: Queryable, outboxIds: readonly bigint[], now: Date): Promise<void> {
  const ids = outboxIds.map(String)
  await sql`
    with told as (
      select o.id, o.provider_id
      from outbox o join provider p on p.id = o.provider_id
      join confirmed_contact c on c.provider_id = p.id and c.address = p.contact
      where o.id = any(${ids}::bigint[]) and o.event = any(${[...mailedEvents]})
    ), noticed as (
      insert into mail_notice (outbox_id, provider_id) select id, provider_id from told on conflict do nothing
    ), held as (
      -- In one order, so that two processes don't wait for each other.
      select provider_id from confirmed_contact where provider_id in (select provider_id from told)
      order by provider_id for update
    )
    update confirmed_contact c set next_attempt_at = coalesce(c.next_attempt_at,
      greatest(${new Date(now.getTime() + gatherMs)}, c.sent_at + ${`${pauseMs} milliseconds`}::interval))
    from held where held.provider_id = c.provider_id`
}

/**
 * Claims a mail that is due, and stores that it is being sent. The caller then sends it.
 *
 * @param leaseMs time after which the mail is due again, unless {@link recordMail} has stored its result.
 */
export async function claimMail(
  sql: Queryable,
  { now, leaseMs }: { now: Date; leaseMs: number },
): Promise<ClaimedMail | undefined> {
  const [mail] = await sql<ClaimedMail[]>`
    with due as (
      select c.provider_id from confirmed_contact c
      join provider p on p.id = c.provider_id and p.contact = c.address
      where c.next_attempt_at <= ${now}
      order by c.next_attempt_at limit 1 for update of c skip locked
    )
    update confirmed_contact c set attempts = attempts + 1, next_attempt_at = ${new Date(now.getTime() + leaseMs)}
    from due where due.provider_id = c.provider_id
    returning c.provider_id as "providerId", c.address, c.attempts as attempt`
  return mail
}

export async function readNotices(sql: Queryable, providerId: string): Promise<Notice[]> {
  return sql<Notice[]>`
    select n.outbox_id as "outboxId", o.event, o.payment_id as "paymentId", o.data
    from mail_notice n join outbox o on o.id = n.outbox_id
    where n.provider_id = ${providerId} order by n.outbox_id limit ${mostNotices}`
}

/**
 * Stores that a mail was sent or has failed, and when the next one is due if there are more notices.
 *
 * @param told the notices in the mail
 */
export async function recordMail(
  sql: Database,
  { providerId, attempt }: ClaimedMail,
  told: readonly Notice[],
  now: Date,
): Promise<void> {
  await sql.begin(async (tx) => {
    // Locks the contact. Another process's new notice is then either seen by the query below, or added only after this transaction.
    await tx`select from confirmed_contact where provider_id = ${providerId} for update`
    await tx`delete from mail_notice where outbox_id = any(${told.map(({ outboxId }) => `${outboxId}`)}::bigint[])`
    await tx`
      update confirmed_contact c set attempts = 0, sent_at = ${now},
        next_attempt_at = case when exists (select from mail_notice n where n.provider_id = c.provider_id)
          then ${new Date(now.getTime() + pauseMs)}::timestamptz end
      where provider_id = ${providerId} and attempts = ${attempt}`
  })
}

/** Stores when a mail that could not be sent is retried. */
export async function postponeMail(
  sql: Queryable,
  { providerId, attempt }: ClaimedMail,
  nextAttemptAt: Date,
): Promise<void> {
  await sql`
    update confirmed_contact set next_attempt_at = ${nextAttemptAt}
    where provider_id = ${providerId} and attempts = ${attempt}`
}
