import { z } from '@hono/zod-openapi'
import type { App } from '../http/app.ts'
import { jsonAnswer } from '../http/problems.ts'
import { Refusal } from '../http/refusal.ts'
import { route } from '../http/route.ts'
import * as wire from '../http/wire.ts'
import type { RouteOptions } from '../routeOptions.ts'
import { createPendingBatches } from './pendingQueries.ts'

/** No node asks for more than the fees of a batch at this price, in an estimate. */
const maxFeePerGas = 100_000_000_000n
const mostPages = 10

const query = z.object({
  network: wire.oneNetwork,
  page: z.coerce
    .number()
    .int()
    .min(0)
    .max(mostPages - 1)
    .default(0)
    .openapi({
      description: "How many batches further down the queue to start: keepers that start apart don't race",
    }),
})

const pending = z
  .object({
    batches: z.array(
      z.object({
        feeRecipient: wire.addressOut,
        trigger: wire.triggerName,
        payments: z.array(z.array(z.string()).min(1).max(2)).openapi({
          description:
            "Payloads (from,to,value,validAfter,validBefore,nonce,signature): the provider's, the fee's; or one that pays a splitter",
        }),
        splitters: z
          .array(
            z.object({
              address: wire.addressOut,
              provider: wire.addressOut,
              shares: z.tuple([z.string(), z.string()]).openapi({
                description: "The provider's and the platform's, in lowest terms",
              }),
            }),
          )
          .openapi({
            description:
              'Whom payments of one signature pay. Its platform is `feeRecipient`: recompute the address from these terms',
          }),
      }),
    ),
    network: z.string(),
    batchSettlement: wire.addressOut,
    token: wire.addressOut,
    indexedBlock: z.int(),
  })
  .openapi('PendingSettlements')

const getPending = route({
  method: 'get',
  path: '/settlements/pending',
  summary: 'What is due, with the signed authorizations: anyone may settle it',
  description:
    "They can only move the buyer's money to the recipients that the buyer signed. What was published can't be voided.",
  tags: ['Settlements'],
  query,
  refuses: [404],
  responses: { 200: jsonAnswer('The due batches', pending) },
})

export function addPendingRoute(app: App, { sql, heads, networks, settings, now }: RouteOptions): void {
  const findPendingBatches = createPendingBatches(sql)

  app.openapi(getPending, async (c) => {
    if (!settings.publicQueue) throw new Refusal('not_found', 'This gateway does not publish its queue')
    const { network: name, page } = c.req.valid('query')
    const { served } = networks.named(name)
    const indexedBlock = (await heads.of(served.network.chainId)) ?? 0
    const { triggers, gasTokenUsd, priorityFeePerGas } = settings
    const batches = await findPendingBatches(served, {
      settings: { triggers, gasTokenUsd, priorityFeePerGas, maxFeePerGas },
      page,
      now: new Date(now()),
    })
    return c.json(
      {
        batches,
        network: served.network.name,
        batchSettlement: served.deployment.batchSettlement,
        token: served.token,
        indexedBlock,
      },
      200,
    )
  })
}
