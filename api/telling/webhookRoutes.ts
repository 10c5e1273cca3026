import { z } from '@hono/zod-openapi'
import type { Database } from '@tollkeeper/ledger/store/database'
import { type AddressGuard, AddressRefusedError } from '../http/addressGuard.ts'
import type { App } from '../http/app.ts'
import { ownersOnly } from '../http/authenticate.ts'
import { createCursor, textField, timeField } from '../http/cursor.ts'
import { jsonAnswer } from '../http/problems.ts'
import { Refusal } from '../http/refusal.ts'
import { route } from '../http/route.ts'
import { view } from '../http/view.ts'
import * as wire from '../http/wire.ts'
import { deliveriesOf, delivery, redeliver } from './deliveryLog.ts'
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

export type WebhookRouteOptions = {
  sql: Database
  /** Checks the addresses of webhooks. */
  addressGuard: AddressGuard
  now: () => number
}

const addListRoute = view('/providers/{id}/webhooks', {
  ...owner,
  summary: 'Webhooks, without their secrets',
  answer: ['The webhooks, oldest first', webhooks],
  open:
    ({ sql }: Pick<WebhookRouteOptions, 'sql'>) =>
    async ({ id }) => ({ webhooks: await webhooksOf(sql, id) }),
})

const addWebhookRoute = view('/providers/{id}/webhooks/{webhookId}', {
  ...owner,
  summary: 'A webhook',
  answer: ['The webhook', webhook],
  open:
    ({ sql }: Pick<WebhookRouteOptions, 'sql'>) =>
    ({ id, webhookId }) =>
      requireWebhook(sql, id, webhookId),
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

const positions = createCursor({ createdAt: timeField, id: textField })

const addDeliveriesRoute = view('/providers/{id}/webhooks/{webhookId}/deliveries', {
  ...owner,
  summary: 'What was sent, newest first, with every attempt',
  query: z.object({ limit: wire.limit, cursor: wire.cursor }),
  answer: ['The deliveries', deliveries],
  open:
    ({ sql }: Pick<WebhookRouteOptions, 'sql'>) =>
    async ({ id, webhookId, ...asked }) => {
      await requireWebhook(sql, id, webhookId)
      const { rows, cursor } = await positions.page(webhookId, asked, (page) =>
        deliveriesOf(sql, { webhookId, ...page }),
      )
      return { deliveries: rows, cursor }
    },
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

async function requireWebhook(sql: Database, id: string, webhookId: string): Promise<Webhook> {
  const webhook = await findWebhook(sql, id, webhookId)
  if (webhook === null) throw new Refusal('unknown_webhook')
  return webhook
}

export function addWebhookRoutes(app: App, options: WebhookRouteOptions): void {
  const { sql, addressGuard, now } = options

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
    return c.json({ ...webhook, secret }, 201)
  })

  addListRoute(app, options)
  addWebhookRoute(app, options)

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
    return c.json({ ...webhook, secret }, 200)
  })

  addDeliveriesRoute(app, options)

  app.openapi(postRedelivery, async (c) => {
    const { id, webhookId, deliveryId } = c.req.valid('param')
    await requireWebhook(sql, id, webhookId)
    const isDue = await redeliver(sql, { webhookId, deliveryId, now: new Date(now()) })
    if (!isDue) throw new Refusal('unknown_delivery')
    return c.body(null, 202)
  })
}
