import type { SendResult } from '@tollkeeper/runtime/send'
import { signWebhook } from '@tollkeeper/runtime/signWebhook'
import type { WebhookEvent } from './events.ts'

/** The contents of a message, and the secrets that sign it. */
export type Message = {
  messageId: string
  event: WebhookEvent | 'webhook.test'
  /** When the event happened. */
  createdAt: Date
  paymentId: string | null
  txHash: string | null
  data: Record<string, unknown>
  /** The current secret first, then the previous one while it is valid. */
  secrets: readonly string[]
}

/** Writes a message in the wire format of Standard Webhooks, signed at `timestamp`. */
export function signMessage(
  message: Message,
  timestamp: Date,
): { headers: Record<string, string>; body: string } {
  const { messageId, event, createdAt, paymentId, txHash, data } = message
  const body = JSON.stringify({
    type: event,
    timestamp: createdAt.toISOString(),
    // A refund's `data` contains the id of the refunded payment.
    data: { paymentId, txHash, ...data },
  })
  return { body, headers: signWebhook({ id: messageId, timestamp, body, secrets: message.secrets }) }
}

/** Returns why a sending doesn't count as received, or null if it does. */
export function failureOf(result: SendResult): string | null {
  if (result.status === 'unanswered') return result.failure
  if (result.httpStatus >= 200 && result.httpStatus < 300) return null
  if (result.httpStatus === 410) return 'gone'
  return result.httpStatus >= 300 && result.httpStatus < 400
    ? 'redirect_refused'
    : `http_${result.httpStatus}`
}
