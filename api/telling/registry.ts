import { randomBytes } from 'node:crypto'
import type { Queryable } from '@tollkeeper/ledger/store/database'
import { newId } from '@tollkeeper/ledger/store/identifiers'
import type { WebhookEvent } from './events.ts'

/** How long the former secret stays valid after a rotation. */
const rotationMs = 24 * 60 * 60_000

/** Most receivers of one provider. */
export const maxWebhooks = 20

export type Webhook = {
  webhookId: string
  providerId: string
  url: string
  description: string
  events: WebhookEvent[]
  createdAt: Date
  /** The receiver answered 410 Gone: nothing is sent to it any more. */
  disabledAt: Date | null
  /** Until when the previous secret signs, too. */
  previousSecretExpiresAt: Date | null
}

/** A new secret as Standard Webhooks writes it: 256 random bits. */
export function newWebhookSecret(): string {
  return `whsec_${randomBytes(32).toString('base64')}`
}

function columns(sql: Queryable) {
  return sql`id as "webhookId", provider_id as "providerId", url, description, events, created_at as "createdAt",
    disabled_at as "disabledAt", previous_secret_expires_at as "previousSecretExpiresAt"`
}

/** @returns null if the provider has {@link maxWebhooks} already. */
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

/** Removes a receiver: its waiting messages are not sent any more; sent ones stay in the database. */
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
 * Makes `secret` the signing one, beside the previous one until `now` + {@link rotationMs}. It also enables a receiver
 * again that said 410 Gone.
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
