import { randomBytes } from 'node:crypto'
import type { Queryable } from '@tollkeeper/ledger/store/database'
import { newId } from '@tollkeeper/ledger/store/identifiers'
import type { WebhookEvent } from './events.ts'

/** Time in ms for which the previous secret stays valid after a rotation. */
const rotationMs = 24 * 60 * 60_000

/** Maximum number of receivers per provider. */
export const maxWebhooks = 20

export type Webhook = {
  webhookId: string
  providerId: string
  url: string
  description: string
  events: WebhookEvent[]
  createdAt: Date
  /** When the receiver answered 410 Gone; since then it gets no messages. */
  disabledAt: Date | null
  /** Time until which messages are also signed with the previous secret. */
  previousSecretExpiresAt: Date | null
}

/** Creates a secret in the format of Standard Webhooks: 256 random bits. */
export function newWebhookSecret(): string {
  return `whsec_${randomBytes(32).toString('base64')}`
}

function columns(sql: Queryable) {
  return sql`id as "webhookId", provider_id as "providerId", url, description, events, created_at as "createdAt",
    disabled_at as "disabledAt", previous_secret_expires_at as "previousSecretExpiresAt"`
}

/** @returns null if the provider already has {@link maxWebhooks} receivers. */
export async function insertWebhook(
  sql: Queryable,
  webhook: { providerId: string; url: string; description: string; events: WebhookEvent[]; secret: string },
): Promise<Webhook | null> {
  const { providerId, url, description, events, secret } = webhook
  const [row] = await sql<Webhook[]>`
    insert into webhook (id, provider_id, url, description, events, secret)
    select ${newId('wh')}, ${providerId}, ${url}, ${description}, ${events}, ${secret}
    where (select count(*) from webhook where provider_id = ${providerId} and deleted_at is null) < ${maxWebhooks}
    returning ${columns(sql)}`
  return row ?? null
}

export async function webhooksOf(sql: Queryable, providerId: string): Promise<Webhook[]> {
  return sql<Webhook[]>`
    select ${columns(sql)} from webhook where provider_id = ${providerId} and deleted_at is null
    order by created_at, id`
}

export async function findWebhook(sql: Queryable, providerId: string, id: string): Promise<Webhook | null> {
  const [row] = await sql<Webhook[]>`
    select ${columns(sql)} from webhook where id = ${id} and provider_id = ${providerId} and deleted_at is null`
  return row ?? null
}

/** Reads the URL of a receiver and its signing secrets, even if the receiver is disabled. */
export async function findReceiver(
  sql: Queryable,
  { providerId, id, now }: { providerId: string; id: string; now: Date },
): Promise<{ webhookId: string; url: string; secrets: string[] } | null> {
  const [row] = await sql<{ webhookId: string; url: string; secrets: string[] }[]>`
    select id as "webhookId", url,
      array_remove(array[secret, case when previous_secret_expires_at > ${now} then previous_secret end], null) as secrets
    from webhook where id = ${id} and provider_id = ${providerId} and deleted_at is null`
  return row ?? null
}

/** Removes a receiver. Its waiting messages are no longer sent, and its sent messages stay in the database. */
export async function deleteWebhook(sql: Queryable, providerId: string, id: string): Promise<boolean> {
  const rows = await sql`
    with gone as (
      update webhook set deleted_at = now(), previous_secret = null, previous_secret_expires_at = null
      where id = ${id} and provider_id = ${providerId} and deleted_at is null
      returning id
    ), dropped as (
      update webhook_delivery set next_attempt_at = null
      where webhook_id in (select id from gone) and next_attempt_at is not null
    )
    select id from gone`
  return rows.length > 0
}

/**
 * Makes `secret` the signing secret; the previous one also signs until `now` + {@link rotationMs}. Also enables a receiver again that
 * answered 410 Gone.
 */
export async function rotateSecret(
  sql: Queryable,
  { providerId, id, secret, now }: { providerId: string; id: string; secret: string; now: Date },
): Promise<Webhook | null> {
  const [row] = await sql<Webhook[]>`
    update webhook set previous_secret = secret, secret = ${secret}, disabled_at = null,
      previous_secret_expires_at = ${new Date(now.getTime() + rotationMs)}
    where id = ${id} and provider_id = ${providerId} and deleted_at is null
    returning ${columns(sql)}`
  return row ?? null
}
