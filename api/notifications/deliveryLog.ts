import { z } from '@hono/zod-openapi'
import type { Queryable } from '@tollkeeper/ledger/store/database'
import * as wire from '../http/wire.ts'
import { webhookEvents } from './events.ts'

const attempt = z
  .object({
    attempt: z.int(),
    startedAt: wire.isoTime,
    endedAt: wire.isoTime
      .nullable()
      .openapi({ description: 'Null: in progress or interrupted, so the receiver may have the message' }),
    httpStatus: z.int().nullable(),
    failure: z.string().nullable().openapi({ example: 'http_500' }),
    detail: z.string().nullable(),
    response: z.string().nullable().openapi({ description: 'First part of the response body' }),
  })
  .openapi('WebhookAttempt')

export const delivery = z
  .object({
    deliveryId: wire.deliveryId,
    messageId: z.string().openapi({ description: 'The `webhook-id` header: the same for every sending' }),
    event: z.enum(webhookEvents),
    paymentId: z.string().nullable(),
    txHash: z.string().nullable(),
    status: z.enum(['pending', 'delivered', 'failed']),
    createdAt: wire.isoTime,
    deliveredAt: wire.isoTime.nullable(),
    nextAttemptAt: wire.isoTime.nullable(),
    attempts: z.array(attempt),
  })
  .openapi('WebhookDelivery')

type Attempt = z.input<typeof attempt>
type Delivery = z.input<typeof delivery> & { id: string }

/** Position at which a page of the log ended: newest first. */
export type DeliveryPosition = { createdAt: Date; id: string }

/** Reads a receiver's deliveries, newest first, each with all its attempts. */
export async function deliveriesOf(
  sql: Queryable,
  { webhookId, after, limit }: { webhookId: string; after: DeliveryPosition | null; limit: number },
): Promise<Delivery[]> {
  const rows = await sql<Omit<Delivery, 'attempts'>[]>`
    select d.id, d.id as "deliveryId", d.message_id as "messageId", o.event, coalesce(o.data->>'paymentId', o.payment_id) as "paymentId", o.tx_hash as "txHash",
      case when d.delivered_at is not null then 'delivered' when d.next_attempt_at is null then 'failed'
        else 'pending' end as status,
      d.created_at as "createdAt", d.delivered_at as "deliveredAt", d.next_attempt_at as "nextAttemptAt"
    from webhook_delivery d join outbox o on o.id = d.outbox_id
    where d.webhook_id = ${webhookId}
      ${after === null ? sql`` : sql`and (d.created_at, d.id) < (${after.createdAt}, ${after.id})`}
    order by d.created_at desc, d.id desc
    limit ${limit}`
  const attempts = await sql<(Attempt & { deliveryId: string })[]>`
    select delivery_id as "deliveryId", attempt, started_at as "startedAt", ended_at as "endedAt",
      status as "httpStatus", failure, detail, response
    from webhook_attempt where delivery_id = any(${rows.map((row) => row.id)})
    order by delivery_id, attempt`
  const byDelivery = Map.groupBy(attempts, (attempt) => attempt.deliveryId)
  return rows.map((row) => ({ ...row, attempts: byDelivery.get(row.id) ?? [] }))
}

/**
 * Makes a message due immediately, even if it was delivered or has failed. The message keeps its id, so the receiver can recognize that it is
 * repeated.
 *
 * @returns false if there is no such delivery, or if nothing can be sent to its receiver
 */
export async function redeliver(
  sql: Queryable,
  { webhookId, deliveryId, now }: { webhookId: string; deliveryId: string; now: Date },
): Promise<boolean> {
  const rows = await sql`
    update webhook_delivery d set next_attempt_at = ${now}, delivered_at = null
    from webhook w
    where d.id = ${deliveryId} and d.webhook_id = ${webhookId}
      and w.id = d.webhook_id and w.deleted_at is null and w.disabled_at is null
    returning d.id`
  return rows.length > 0
}
