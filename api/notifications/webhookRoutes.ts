import { z } from '@hono/zod-openapi'
import type { Database } from '@tollkeeper/ledger/store/database'
import { type AddressGuard, AddressRefusedError } from '@tollkeeper/runtime/addressGuard'
import type { RateLimiter } from '@tollkeeper/runtime/rateLimiter'
import type { App } from '../http/app.ts'
import { ownersOnly } from '../http/authenticate.ts'
import { createCursor, textField, timeField } from '../http/cursor.ts'
import { tooMany } from '../http/limitRate.ts'
import { jsonAnswer } from '../http/problems.ts'
import { Refusal } from '../http/refusal.ts'
import { route } from '../http/route.ts'
import type { GatewaySettings } from '../http/settings.ts'
import { view } from '../http/view.ts'
import * as wire from '../http/wire.ts'
import { deliveriesOf, delivery, redeliver } from './deliveryLog.ts'
import { webhookEvents } from './events.ts'
import {
  deleteWebhook,
  findReceiver,
  findWebhook,
  insertWebhook,
  maxWebhooks,
  newWebhookSecret,
  rotateSecret,
  type Webhook,
  webhooksOf,
} from './registry.ts'
import { sendTest } from './sendTest.ts'

const event = z.enum(webhookEvents)

const newWebhook = z
  .strictObject({
    url: z
      .string()
      .max(2_000)
      .openapi({ example: 'https://weather.example/tollkeeper', description: 'A public https URL' }),
    events: z
      .array(event)
      .min(1)
      .max(webhookEvents.length)
      .optional()
      .openapi({ description: 'Events to receive. Default: all' }),
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
    disabledAt: wire.isoTime.nullable().openapi({
      description:
        'When it was disabled because the receiver answered 410; rotating its secret enables it again',
    }),
    previousSecretExpiresAt: wire.isoTime.nullable(),
  })
  .openapi('Webhook')

export const webhookWithSecret = webhook
  .extend({
    secret: z.string().openapi({
      description: 'Shown only once; works with any Standard Webhooks library',
      example: 'whsec_…',
    }),
  })
  .openapi('WebhookWithSecret')

const webhooks = z.object({ webhooks: z.array(webhook) }).openapi('Webhooks')

const deliveries = z
  .object({ deliveries: z.array(delivery), cursor: wire.cursorOut })
  .openapi('WebhookDeliveries')

const owner = { ...ownersOnly, tags: ['Webhooks'] }

const createWebhook = route('post', '/providers/{id}/webhooks', {
  ...owner,
  summary: 'Register a URL that receives events',
  body: newWebhook,
  responses: {
    201: jsonAnswer('The webhook, and the secret that its messages are signed with', webhookWithSecret),
  },
})

export type WebhookRouteOptions = {
  sql: Database
  /** Checks the addresses of webhooks. */
  addressGuard: AddressGuard
  rateLimiter: RateLimiter
  settings: Pick<GatewaySettings, 'rateLimits'>
  now: () => number
}

const addListRoute = view('/providers/{id}/webhooks', {
  ...owner,
  summary: 'List webhooks, without their secrets',
  answer: ['The webhooks, oldest first', webhooks],
  open:
    ({ sql }: Pick<WebhookRouteOptions, 'sql'>) =>
    async ({ id }) => ({ webhooks: await webhooksOf(sql, id) }),
})

const addWebhookRoute = view('/providers/{id}/webhooks/{webhookId}', {
  ...owner,
  summary: 'Read a webhook',
  answer: ['The webhook', webhook],
  open:
    ({ sql }: Pick<WebhookRouteOptions, 'sql'>) =>
    ({ id, webhookId }) =>
      requireWebhook(sql, id, webhookId),
})

const removeWebhook = route('delete', '/providers/{id}/webhooks/{webhookId}', {
  ...owner,
  summary: 'Delete a webhook; its waiting messages are dropped',
  responses: { 204: { description: 'Deleted' } },
})

const postRotation = route('post', '/providers/{id}/webhooks/{webhookId}/rotate', {
  ...owner,
  summary: 'Rotate the secret; for 24 hours messages are also signed with the previous one',
  responses: { 200: jsonAnswer('The new secret', webhookWithSecret) },
})

/**
 * Maximum number of webhook tests per minute: a test keeps a request open for up to ten seconds, and calls a URL that the provider chose.
 */
const testsPerMinute = 10

const testResult = z
  .object({
    delivered: z.boolean().openapi({ description: 'Whether the URL answered with a 2xx' }),
    status: z
      .int()
      .nullable()
      .openapi({ description: 'HTTP status of the answer; null if there was none', example: 204 }),
    durationMs: z.int(),
    error: z
      .string()
      .optional()
      .openapi({ description: "Why the test event doesn't count as received", example: 'http_500' }),
  })
  .openapi('WebhookTestResult')

const postTest = route('post', '/providers/{id}/webhooks/{webhookId}/test', {
  ...owner,
  summary: 'Send a signed test event now, and return the URL’s answer',
  description:
    "The event's type is `webhook.test`. It doesn't appear in the log of deliveries, and a failed test neither pauses nor disables the webhook. " +
    `At most ${testsPerMinute} tests per minute and provider.`,
  refuses: [429],
  responses: { 200: jsonAnswer('The URL’s answer', testResult) },
})

const positions = createCursor({ createdAt: timeField, id: textField })

const addDeliveriesRoute = view('/providers/{id}/webhooks/{webhookId}/deliveries', {
  ...owner,
  summary: 'List messages, newest first, with every attempt',
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
    summary: 'Send a message again, even if it was delivered',
    responses: { 202: { description: 'The message is sent within seconds' } },
  },
)

async function requireWebhook(sql: Database, id: string, webhookId: string): Promise<Webhook> {
  const webhook = await findWebhook(sql, id, webhookId)
  if (webhook === null) throw new Refusal('unknown_webhook')
  return webhook
}

export function addWebhookRoutes(app: App, options: WebhookRouteOptions): void {
  const { sql, addressGuard, rateLimiter, settings, now } = options

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
      throw new Refusal(
        'webhook_limit_reached',
        `A provider can have at most ${maxWebhooks} webhooks: delete one first`,
      )
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

  app.openapi(postTest, async (c) => {
    const { id, webhookId } = c.req.valid('param')
    if (settings.rateLimits !== null) {
      const allowed = rateLimiter.count(`webhookTest:${id}`, testsPerMinute)
      if (!allowed.isAllowed) throw tooMany(allowed)
    }
    const receiver = await findReceiver(sql, { providerId: id, id: webhookId, now: new Date(now()) })
    if (receiver === null) throw new Refusal('unknown_webhook')
    return c.json(await sendTest(receiver, { guard: addressGuard, now }), 200)
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
