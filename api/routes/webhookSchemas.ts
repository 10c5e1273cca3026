import { z } from '@hono/zod-openapi'
import { webhookEvents } from '../portal/webhooks/events.ts'
import { cursor, cursorOut, isoTime, limit, providerId } from './viewSchemas.ts'

export const webhookId = z
  .string()
  .regex(/^wh_[0-9a-f]{32}$/)
  .openapi({ example: 'wh_0f8fad5bd9cb469fa16570867728950e' })
export const deliveryId = z
  .string()
  .regex(/^whd_[0-9a-f]{32}$/)
  .openapi({ example: 'whd_0f8fad5bd9cb469fa16570867728950e' })

const event = z.enum(webhookEvents)

export const newWebhook = z
  .object({
    url: z
      .string()
      .max(2_000)
      .openapi({ example: 'https://weather.example/tollkeeper', description: 'https, public' }),
    events: z
      .array(event)
      .min(1)
      .max(webhookEvents.length)
      .optional()
      .openapi({ description: 'Default: all' }),
    description: z.string().max(200).optional(),
  })
  .openapi('NewWebhook')

export const webhook = z
  .object({
    webhookId,
    providerId,
    url: z.string(),
    description: z.string(),
    events: z.array(event),
    createdAt: isoTime,
    disabledAt: isoTime
      .nullable()
      .openapi({ description: 'The receiver answered 410; a rotation brings it back' }),
    previousSecretExpiresAt: isoTime.nullable(),
  })
  .openapi('Webhook')

export const webhookWithSecret = webhook
  .extend({
    secret: z
      .string()
      .openapi({ description: 'Shown this once; for any Standard Webhooks library', example: 'whsec_…' }),
  })
  .openapi('WebhookWithSecret')

export const webhooks = z.object({ webhooks: z.array(webhook) }).openapi('Webhooks')

export const deliveriesQuery = z.object({ limit, cursor })

const attempt = z
  .object({
    attempt: z.int(),
    startedAt: isoTime,
    endedAt: isoTime
      .nullable()
      .openapi({ description: 'Null: under way, or cut short; the receiver may have it' }),
    httpStatus: z.int().nullable(),
    failure: z.string().nullable().openapi({ example: 'http_500' }),
    detail: z.string().nullable(),
    response: z.string().nullable().openapi({ description: 'How the body began' }),
  })
  .openapi('WebhookAttempt')

const delivery = z
  .object({
    deliveryId,
    messageId: z.string().openapi({ description: 'The `webhook-id` header: the same for every sending' }),
    event,
    paymentId: z.string().nullable(),
    txHash: z.string().nullable(),
    status: z.enum(['pending', 'delivered', 'failed']),
    createdAt: isoTime,
    deliveredAt: isoTime.nullable(),
    nextAttemptAt: isoTime.nullable(),
    attempts: z.array(attempt),
  })
  .openapi('WebhookDelivery')

export const deliveries = z
  .object({ deliveries: z.array(delivery), cursor: cursorOut })
  .openapi('WebhookDeliveries')
