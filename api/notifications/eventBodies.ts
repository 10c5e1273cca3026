import { z } from '@hono/zod-openapi'
import type { App } from '../http/app.ts'
import * as wire from '../http/wire.ts'
import type { WebhookEvent } from './events.ts'

/*
 * Schemas of webhook messages, for the OpenAPI document and the SDK that is generated from it. SQL statements write the messages
 * (docs/webhooks.md names the events); eventBodies.test.ts compares each kind with its schema.
 */

const baseUnits = z
  .string()
  .openapi({ example: '47500', description: 'USDC base units: 1000000 = 1 USDC', pattern: '^\\d+$' })
const time = z.iso.datetime().openapi({ example: '2026-11-21T12:00:00.000Z' })
const network = wire.networkName
const noTransaction = z.null().openapi({ description: 'Always null, because the event is not on chain' })

/** Field of a message about a payment. */
const ofPayment = { paymentId: wire.paymentId }

/** Fields that describe how the provider's half of a payment was settled. */
const arrival = {
  txHash: wire.hashOut,
  network,
  blockNumber: z.int(),
  settledAt: time.openapi({ description: 'Time of the block' }),
}

const line = z
  .object({
    endpointId: wire.endpointId.nullable(),
    payTo: wire.addressOut,
    requests: z.int(),
    providerUsdc: baseUnits,
    platformUsdc: baseUnits,
    settledUsdc: baseUnits.openapi({ description: "The part of the provider's amount that has arrived" }),
  })
  .openapi('TabEventLine')

/** Fields of a provider's part of a tab. */
const ofTab = {
  tabId: wire.tabId,
  closeReason: z.string().openapi({ example: 'idle' }),
  requests: z.int(),
  providerUsdc: baseUnits,
  platformUsdc: baseUnits,
  settledUsdc: baseUnits.openapi({ description: "The part of the provider's amount that has arrived" }),
  lines: z.array(line),
}

const failing = {
  code: z.string().openapi({ example: 'insufficient_balance', description: 'A stable error code' }),
  attempts: z.int(),
  nextAttemptAt: time.nullable().openapi({ description: 'Null: no further attempt' }),
}

/** Fields of a failure if the payment is a tab. */
const ofFailedTab = {
  tabId: ofTab.tabId.optional(),
  closeReason: ofTab.closeReason.optional(),
  requests: ofTab.requests.optional(),
  providerUsdc: ofTab.providerUsdc.optional(),
  platformUsdc: ofTab.platformUsdc.optional(),
  settledUsdc: ofTab.settledUsdc.optional(),
  lines: ofTab.lines.optional(),
}

const ofRefund = {
  paymentId: wire.paymentId.openapi({ description: 'The payment that is refunded' }),
  number: z.int().openapi({ description: "Number of the refund among the payment's refunds" }),
}

const failedPayment = z.object({ ...ofPayment, txHash: noTransaction, ...failing, ...ofFailedTab })
const failedRefund = z.object({ ...ofRefund, txHash: noTransaction, ...failing })

type Described = WebhookEvent | 'webhook.test'

const described: Record<Described, readonly [summary: string, data: z.ZodObject]> = {
  'payment.settled': [
    'A payment, including its fee, is settled on chain',
    z.object({
      ...ofPayment,
      ...arrival,
      providerUsdc: baseUnits,
      platformUsdc: baseUnits,
      platformTxHash: wire.hashOut.nullable().openapi({
        description: 'The transaction that settled the fee; null if the fee has no separate authorization',
      }),
    }),
  ],
  'payment.reverted': [
    'A reorg reverted a settled payment; it will be settled again',
    z.object({ ...ofPayment, txHash: wire.hashOut, network }),
  ],
  'tab.closed': [
    'A tab is closed, and its payment waits to be settled',
    z.object({ ...ofPayment, txHash: noTransaction, network: network.nullable(), closedAt: time, ...ofTab }),
  ],
  'tab.settled': ["A tab's payment is settled on chain", z.object({ ...ofPayment, ...arrival, ...ofTab })],
  'tab.reverted': [
    "A reorg reverted a tab's settled payment; it will be settled again",
    z.object({ ...ofPayment, txHash: wire.hashOut, network, tabId: wire.tabId }),
  ],
  'batch.confirmed': [
    "A batch reached its network's confirmation depth",
    z.object({
      paymentId: z.null(),
      txHash: wire.hashOut,
      network,
      batchId: z.int().openapi({ description: 'Number of the batch on its network' }),
      payments: z
        .int()
        .openapi({ description: "Number of the provider's payments; each request on a tab counts as one" }),
      providerUsdc: baseUnits,
      createdAt: time.openapi({ description: 'Time of the block' }),
      confirmedAt: time,
    }),
  ],
  'settlement.failing': ['The third attempt to settle a payment has failed', failedPayment],
  'settlement.failed': ['A payment has failed and will not be retried', failedPayment],
  'refund.settled': [
    'A refund is settled on chain',
    z.object({ ...ofRefund, ...arrival, valueUsdc: baseUnits }),
  ],
  'refund.reverted': [
    'A reorg reverted a settled refund; it will be settled again',
    z.object({ ...ofRefund, txHash: wire.hashOut, network }),
  ],
  'refund.failing': ['The third attempt to settle a refund has failed', failedRefund],
  'refund.failed': ['A refund has failed and will not be retried', failedRefund],
  'webhook.test': [
    'A test event that the provider requested',
    z.object({ paymentId: z.null(), txHash: z.null(), webhookId: wire.webhookId }),
  ],
}

/** The body of each kind of message. */
export const eventBodies: ReadonlyMap<string, z.ZodObject> = new Map(
  Object.entries(described).map(([type, [summary, data]]) => {
    const name = type.replaceAll(/(?:^|\.)(\w)/g, (_, letter: string) => letter.toUpperCase())
    const body = z
      .object({
        type: z.literal(type),
        timestamp: time.openapi({ description: 'When it happened' }),
        data,
      })
      .openapi(`${name}Event`, { description: summary })
    return [type, body]
  }),
)

/** Declares the messages as `webhooks` of the OpenAPI document. */
export function describeWebhooks({ openAPIRegistry }: App): void {
  for (const [type, schema] of eventBodies) {
    openAPIRegistry.registerWebhook({
      method: 'post',
      path: type,
      operationId: type.replaceAll(/\.(\w)/g, (_, letter: string) => letter.toUpperCase()),
      summary: described[type as Described][0],
      description:
        'Signed as Standard Webhooks specify: `webhook-id`, `webhook-timestamp`, `webhook-signature`.',
      tags: ['Webhooks'],
      security: [],
      request: { body: { required: true, content: { 'application/json': { schema } } } },
      responses: { 200: { description: 'Received. Any 2xx is accepted; 410 disables this webhook' } },
    })
  }
}
