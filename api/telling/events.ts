/** What a provider can be told of; the keeper writes each into the outbox in the transaction that causes it. */
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
