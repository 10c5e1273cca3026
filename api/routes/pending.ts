import { createRoute, z } from '@hono/zod-openapi'
import { triggerCodes } from '#protocol/settlement'
import type { App } from '../app.ts'
import { type Gateway, networkOf } from '../http/gateway.ts'
import { jsonAnswer, problems } from '../http/problems.ts'
import { addressOut, networkName } from '../http/schemas.ts'
import { fromIndex, requireIndexedHead } from '../portal/queries/indexedHead.ts'
import { createPendingBatches } from '../portal/queries/pendingBatches.ts'
import { Refusal } from '../refusal.ts'

/** No node asks for more than the fees of a batch at this price, in an estimate. */
const maxFeePerGas = 100_000_000_000n
const mostPages = 10

const query = z.object({
  network: networkName.optional(),
  page: z.coerce
    .number()
    .int()
    .min(0)
    .max(mostPages - 1)
    .default(0)
    .openapi({ description: "So many batches further down the queue: keepers that start apart don't race" }),
})

const pending = z
  .object({
    batches: z.array(
      z.object({
        feeRecipient: addressOut,
        trigger: z.enum(Object.keys(triggerCodes) as [keyof typeof triggerCodes]),
        payments: z.array(z.array(z.string()).min(1).max(2)).openapi({
          description:
            "Payloads (from,to,value,validAfter,validBefore,nonce,signature): the provider's, the fee's",
        }),
      }),
    ),
    network: z.string(),
    batchSettlement: addressOut,
    token: addressOut,
    indexedBlock: z.int(),
  })
  .openapi('PendingSettlements')

const getPending = createRoute({
  method: 'get',
  path: '/settlements/pending',
  summary: 'What is due, with the signed authorizations: anyone may settle it',
  description:
    "They can only move the buyer's money to the recipients that the buyer signed. What was published can't be voided.",
  tags: ['Settlements'],
  request: { query },
  responses: { 200: jsonAnswer('The due batches', pending), ...problems(400, 404, 422, 429, 503) },
})

export function addPendingRoute(app: App, gateway: Gateway): void {
  const { database, settings } = gateway
  const findPendingBatches = createPendingBatches(database)

  app.openapi(getPending, async (c) => {
    if (!settings.publicQueue) throw new Refusal('not_found', 'This gateway does not publish its queue')
    const { network: name, page } = c.req.valid('query')
    const { served } = networkOf(gateway, name)
    const head = await requireIndexedHead(database, served.network.chainId)
    const { triggers, gasTokenUsd, priorityFeePerGas } = settings
    const batches = await fromIndex(
      findPendingBatches(served, {
        settings: { triggers, gasTokenUsd, priorityFeePerGas, maxFeePerGas },
        page,
        now: new Date(gateway.now()),
      }),
    )
    return c.json(
      {
        batches,
        network: served.network.name,
        batchSettlement: served.deployment.batchSettlement,
        token: served.token,
        indexedBlock: Number(head.blockNumber),
      },
      200,
    )
  })
}
