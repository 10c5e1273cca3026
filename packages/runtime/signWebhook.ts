import { Webhook } from 'standardwebhooks'

/** The signed parts of a request in the wire format of Standard Webhooks. */
export type SignedWebhook = {
  /** Id of the message. A message that is sent again has the same id. */
  id: string
  timestamp: Date
  body: string
  /** The current secret first, then the previous one while it is valid. */
  secrets: readonly string[]
}

/** Returns the headers of a request in the wire format of Standard Webhooks. */
export function signWebhook({ id, timestamp, body, secrets }: SignedWebhook): Record<string, string> {
  const signatures = secrets.map((secret) => new Webhook(secret).sign(id, timestamp, body))
  return {
    'content-type': 'application/json',
    'user-agent': 'Tollkeeper-Webhooks/1',
    'webhook-id': id,
    'webhook-timestamp': String(Math.floor(timestamp.getTime() / 1000)),
    'webhook-signature': signatures.join(' '),
  }
}
