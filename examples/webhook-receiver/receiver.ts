import { ProtocolError, unwrapWebhook, type WebhookEvent } from '@tollkeeper/sdk/provider'
import { Hono } from 'hono'
import { bodyLimit } from 'hono/body-limit'

/**
 * Receives a gateway's webhooks: checks the signature, handles each message once, and answers immediately.
 *
 * This example keeps the ids of messages in memory. If your program books money, store the message's id in the same database
 * transaction. Then a message that is delivered twice is booked once, even after a crash.
 *
 * @param secret the webhook's secret; during a rotation, the new one and the old one
 */
export function createReceiver(
  secret: string | readonly string[],
  onEvent: (event: WebhookEvent) => void,
): Hono {
  const seen = new Set<string>()
  const app = new Hono()

  app.post('/tollkeeper', bodyLimit({ maxSize: 65_536 }), async (c) => {
    let event: WebhookEvent
    try {
      // The signature covers the raw body, so read it as text.
      event = await unwrapWebhook(await c.req.text(), c.req.raw.headers, secret)
    } catch (error) {
      if (error instanceof ProtocolError) return c.text(error.message, error.status === 400 ? 400 : 401)
      throw error
    }
    if (!seen.has(event.id)) {
      onEvent(event)
      seen.add(event.id)
      if (seen.size > 10_000) seen.delete(seen.values().next().value ?? '')
    }
    return c.body(null, 204)
  })
  return app
}
