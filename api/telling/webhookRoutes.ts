import { z } from '@hono/zod-openapi'
import { AddressRefusedError } from '../http/addressGuard.ts'
import type { App } from '../http/app.ts'
import { ownersOnly } from '../http/authenticate.ts'
import { createCursor, cutPage, textField, timeField } from '../http/cursor.ts'
import { jsonAnswer } from '../http/problems.ts'
import { Refusal } from '../http/refusal.ts'
import { route } from '../http/route.ts'
import * as wire from '../http/wire.ts'
import type { RouteOptions } from '../routeOptions.ts'
import { type Delivery, deliveriesOf, redeliver } from './deliveryLog.ts'
import { webhookEvents } from './events.ts'
import {
  deleteWebhook,
  findWebhook,
  insertWebhook,
  maxWebhooks,
  newWebhookSecret,
  rotateSecret,
  type Webhook,
  webhooksOf,
} from './registry.ts'

const event = z.enum(webhookEvents)

const newWebhook = z
  .strictObject({
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
    webhookId: wire.webhookId,
    providerId: wire.providerId,
    url: z.string(),
    description: z.string(),
    events: z.array(event),
    createdAt: wire.isoTime,
    disabledAt: wire.isoTime
      .nullable()
      .openapi({ description: 'The receiver answered 410; a rotation brings it back' }),
    previousSecretExpiresAt: wire.isoTime.nullable(),
  })
  .openapi('Webhook')

export const webhookWithSecret = webhook
  .extend({
    secret: z
      .string()
      .openapi({ description: 'Shown this once; for any Standard Webhooks library', example: 'whsec_…' }),
  })
  .openapi('WebhookWithSecret')

const webhooks = z.object({ webhooks: z.array(webhook) }).openapi('Webhooks')

const deliveriesQuery = z.object({ limit: wire.limit, cursor: wire.cursor })

const attempt = z
  .object({
    attempt: z.int(),
    startedAt: wire.isoTime,
    endedAt: wire.isoTime
      .nullable()
      .openapi({ description: 'Null: under way, or cut short; the receiver may have it' }),
    httpStatus: z.int().nullable(),
    failure: z.string().nullable().openapi({ example: 'http_500' }),
    detail: z.string().nullable(),
    response: z.string().nullable().openapi({ description: 'How the body began' }),
  })
  .openapi('WebhookAttempt')

export const delivery = z
  .object({
    deliveryId: wire.deliveryId,
    messageId: z.string().openapi({ description: 'The `webhook-id` header: the same for every sending' }),
    event,
    paymentId: z.string().nullable(),
    txHash: z.string().nullable(),
    status: z.enum(['pending', 'delivered', 'failed']),
    createdAt: wire.isoTime,
    deliveredAt: wire.isoTime.nullable(),
    nextAttemptAt: wire.isoTime.nullable(),
    attempts: z.array(attempt),
  })
  .openapi('WebhookDelivery')

const deliveries = z
  .object({ deliveries: z.array(delivery), cursor: wire.cursorOut })
  .openapi('WebhookDeliveries')

const owner = { ...ownersOnly, tags: ['Webhooks'] }

const createWebhook = route('post', '/providers/{id}/webhooks', {
  ...owner,
  summary: 'Register a URL to be told of events',
  body: newWebhook,
  responses: {
    201: jsonAnswer('The webhook, and the secret that its messages are signed with', webhookWithSecret),
  },
})

const getWebhooks = route('get', '/providers/{id}/webhooks', {
  ...owner,
  summary: 'Webhooks, without their secrets',
  responses: { 200: jsonAnswer('The webhooks, oldest first', webhooks) },
})

const getWebhook = route('get', '/providers/{id}/webhooks/{webhookId}', {
  ...owner,
  summary: 'A webhook',
  responses: { 200: jsonAnswer('The webhook', webhook) },
})

const removeWebhook = route('delete', '/providers/{id}/webhooks/{webhookId}', {
  ...owner,
  summary: 'Stop sending to a URL; what waits for it is dropped',
  responses: { 204: { description: 'Deleted' } },
})

const postRotation = route('post', '/providers/{id}/webhooks/{webhookId}/rotate', {
  ...owner,
  summary: 'Sign with a new secret; for 24 hours the one before signs as well',
  responses: { 200: jsonAnswer('The new secret', webhookWithSecret) },
})

const getDeliveries = route('get', '/providers/{id}/webhooks/{webhookId}/deliveries', {
  ...owner,
  summary: 'What was sent, newest first, with every attempt',
  query: deliveriesQuery,
  responses: { 200: jsonAnswer('The deliveries', deliveries) },
})

const postRedelivery = route(
  'post',
  '/providers/{id}/webhooks/{webhookId}/deliveries/{deliveryId}/redeliver',
  {
    ...owner,
    summary: 'Send a message again, whatever became of it',
    responses: { 202: { description: 'It is sent within seconds' } },
  },
)

const positions = createCursor({ createdAt: timeField, id: textField })

export function addWebhookRoutes(app: App, { sql, addressGuard, now }: RouteOptions): void {
  async function requireWebhook(id: string, webhookId: string): Promise<Webhook> {
    const webhook = await findWebhook(sql, id, webhookId)
    if (webhook === null) throw new Refusal('unknown_webhook')
    return webhook
  }

  app.openapi(createWebhook, async (c) => {
    const { id } = c.req.valid('param')
    const { url, events = [...webhookEvents], description = '' } = c.req.valid('json')
    const parsed = URL.parse(url)
    if (parsed === null) throw new Refusal('webhook_url_refused', 'expected an absolute URL')
    await addressGuard.check(parsed).catch((error: unknown) => {
      if (!(error instanceof AddressRefusedError)) throw error
      throw new Refusal('webhook_url_refused', error.message, { cause: error })
    })
    const secret = newWebhookSecret()
    const wanted = { providerId: id, url: parsed.href, description, events: [...new Set(events)], secret }
    const webhook = await insertWebhook(sql, wanted)
    if (webhook === null)
      throw new Refusal('webhook_limit_reached', `At most ${maxWebhooks} webhooks a provider`)
    return c.json({ ...toWebhook(webhook), secret }, 201)
  })

  app.openapi(getWebhooks, async (c) => {
    const webhooks = await webhooksOf(sql, c.req.valid('param').id)
    return c.json({ webhooks: webhooks.map(toWebhook) }, 200)
  })

  app.openapi(getWebhook, async (c) => {
    const { id, webhookId } = c.req.valid('param')
    return c.json(toWebhook(await requireWebhook(id, webhookId)), 200)
  })

  app.openapi(removeWebhook, async (c) => {
    const { id, webhookId } = c.req.valid('param')
    if (!(await deleteWebhook(sql, id, webhookId))) throw new Refusal('unknown_webhook')
    return c.body(null, 204)
  })

  app.openapi(postRotation, async (c) => {
    const { id, webhookId } = c.req.valid('param')
    const secret = newWebhookSecret()
    const webhook = await rotateSecret(sql, {
      providerId: id,
      id: webhookId,
      secret,
      now: new Date(now()),
    })
    if (webhook === null) throw new Refusal('unknown_webhook')
    return c.json({ ...toWebhook(webhook), secret }, 200)
  })

  app.openapi(getDeliveries, async (c) => {
    const { id, webhookId } = c.req.valid('param')
    const { limit = wire.defaultLimit, cursor } = c.req.valid('query')
    await requireWebhook(id, webhookId)
    const after = positions.read(webhookId, cursor)
    const found = await deliveriesOf(sql, { webhookId, after, limit: limit + 1 })
    const { page, last } = cutPage(found, limit)
    return c.json(
      {
        deliveries: page.map(toDelivery),
        cursor: last && positions.write(webhookId, { createdAt: last.createdAt, id: last.id }),
      },
      200,
    )
  })

  app.openapi(postRedelivery, async (c) => {
    const { id, webhookId, deliveryId } = c.req.valid('param')
    await requireWebhook(id, webhookId)
    const isDue = await redeliver(sql, { webhookId, deliveryId, now: new Date(now()) })
    if (!isDue) throw new Refusal('unknown_delivery')
    return c.body(null, 202)
  })
}

function toWebhook({ id, ...webhook }: Webhook) {
  return { webhookId: id, ...webhook }
}

function toDelivery({ id, ...delivery }: Delivery) {
  return { deliveryId: id, ...delivery }
}
