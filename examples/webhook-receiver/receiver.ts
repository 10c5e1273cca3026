import { Hono } from 'hono'
import { bodyLimit } from 'hono/body-limit'
import { Webhook, WebhookVerificationError } from 'standardwebhooks'

export type GatewayEvent = { type: string; timestamp: string; data: Record<string, unknown> }

/**
 * Receives a gateway's webhooks: checks the signature, takes each message once, answers at once.
 *
 * This example keeps the ids of messages in memory. A program that books money stores the id in the transaction that
 * books it; then a message that is delivered twice is booked once, even after a crash.
 */
export function createReceiver(
  secret: string,
  onEvent: (event: GatewayEvent, messageId: string) => void,
): Hono {
  const verifier = new Webhook(secret)
  const seen = new Set<string>()
  const app = new Hono()

  app.post('/tollkeeper', bodyLimit({ maxSize: 65_536 }), async (c) => {
    // The signature covers the raw body, so verify the text before parsing it.
    const body = await c.req.text()
    let event: GatewayEvent
    try {
      event = verifier.verify(body, c.req.header()) as GatewayEvent
    } catch (error) {
      if (error instanceof WebhookVerificationError) return c.text('signature refused', 401)
      throw error
    }
    const messageId = c.req.header('webhook-id') ?? ''
    if (!seen.has(messageId)) {
      onEvent(event, messageId)
      seen.add(messageId)
      if (seen.size > 10_000) seen.delete(seen.values().next().value ?? '')
    }
    return c.body(null, 204)
  })
  return app
}
