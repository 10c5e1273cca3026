/** Events for providers. The code that causes an event writes it into the outbox in the same transaction. */
export const webhookEvents = [
  'payment.settled',
  'payment.reverted',
  'tab.closed',
  'tab.settled',
  'tab.reverted',
  'batch.confirmed',
  'settlement.failing',
  'settlement.failed',
  'refund.settled',
  'refund.reverted',
  'refund.failing',
  'refund.failed',
] as const

export type WebhookEvent = (typeof webhookEvents)[number]
