// Made by `npm run generate` from the OpenAPI document of the gateway.

/** The types of webhook messages. */
export const webhookTypes = [
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
  'webhook.test',
] as const
