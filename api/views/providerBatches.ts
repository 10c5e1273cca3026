import { z } from '@hono/zod-openapi'
import { networkByChainId } from '#protocol/networks'
import type { App } from '../http/app.ts'
import { providerViews } from '../http/authenticate.ts'
import { cutPage } from '../http/cursor.ts'
import { jsonAnswer } from '../http/problems.ts'
import { route } from '../http/route.ts'
import * as wire from '../http/wire.ts'
import type { RouteOptions } from '../routeOptions.ts'
import { type BatchRow, listBatches, toPosition } from './batchQueries.ts'
import { addConfirmations, addGasTokenPrices } from './blockFacts.ts'
import { batchPositions, settlementBatch, toSettlementBatch } from './settlementBatches.ts'

const batchesQuery = z.object({
  network: wire.networkName.optional(),
  limit: wire.limit,
  cursor: wire.cursor,
})

const providerBatch = settlementBatch
  .extend({
    network: wire.networkName,
    payment_count: z.int().openapi({ description: "The provider's own, in all its wallets" }),
    batch_payment_count: z.int().openapi({ description: "Everybody's in this batch" }),
    gas_used: z.string().openapi({ example: '9104312', description: 'Of the whole transaction' }),
    gas_cost_usdc: wire.decimalUsdc.openapi({
      description: 'Of the whole transaction; the platform pays it',
    }),
  })
  .openapi('ProviderBatch')

export const providerBatches = z
  .object({ batches: z.array(providerBatch), cursor: wire.cursorOut, indexedBlocks: wire.indexedBlocks })
  .openapi('ProviderBatches')

const getBatches = route('get', '/providers/{id}/batches', {
  ...providerViews,
  summary: "Batches that paid any of the provider's wallets, newest first",
  query: batchesQuery,
  responses: { 200: jsonAnswer('The batches', providerBatches) },
})

export function addProviderBatchRoute(
  app: App,
  { sql, heads, networks, settings: { gasTokenUsd } }: RouteOptions,
): void {
  app.openapi(getBatches, async (c) => {
    const providerId = c.req.valid('param').id
    const { network, cursor, limit = wire.defaultLimit } = c.req.valid('query')
    const chainId = networks.chainIdNamed(network)
    const after = batchPositions.read('batches', cursor)
    const indexedBlocks = await heads.ofProvider(providerId, chainId)
    const found = await listBatches(sql, { providerId, chainId }, { after, limit: limit + 1 })
    const { page, last } = cutPage(found, limit)
    const byChain = Map.groupBy(page, (batch) => batch.chainId)
    await Promise.all(
      [...byChain].flatMap(([id, batches]) => {
        const { served } = networks.ofChain(id)
        const indexedBlock = indexedBlocks[served.network.name] ?? 0
        return [addConfirmations(served, batches, indexedBlock), addGasTokenPrices(sql, served, batches)]
      }),
    )
    return c.json(
      {
        batches: page.map((batch) => toProviderBatch(batch, gasTokenUsd)),
        cursor: last && batchPositions.write('batches', toPosition(last)),
        indexedBlocks,
      },
      200,
    )
  })
}

function toProviderBatch(batch: BatchRow, gasTokenUsd: bigint) {
  return {
    ...toSettlementBatch(batch, gasTokenUsd),
    network: networkByChainId(batch.chainId).name,
    batch_payment_count: batch.batchPaymentCount,
    gas_used: batch.gasUsed.toString(),
  }
}
