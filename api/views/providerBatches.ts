import { z } from '@hono/zod-openapi'
import type { Database } from '@tollkeeper/ledger/store/database'
import { providerViews } from '../http/authenticate.ts'
import type { GatewaySettings } from '../http/settings.ts'
import { view } from '../http/view.ts'
import * as wire from '../http/wire.ts'
import type { RecordedHeads } from '../payments/records/recordedHeads.ts'
import type { GatewayNetworks } from '../registry/networks.ts'
import { listBatches } from './batchQueries.ts'
import { addConfirmations, addGasTokenPrices } from './blockFacts.ts'
import { batchPositions, settlementBatch, toSettlementBatch } from './settlementBatches.ts'

const batchesQuery = z.object({
  network: wire.networkName.optional(),
  limit: wire.limit,
  cursor: wire.cursor,
})

const providerBatch = settlementBatch
  .extend({
    network: wire.networkOfChain,
    payment_count: z
      .int()
      .openapi({ description: 'Number of payments to the provider, over all its wallets' }),
    batch_payment_count: z.int().openapi({ description: 'Number of all payments in the batch' }),
    gas_used: wire.integerText.openapi({ example: '9104312', description: 'Gas of the whole transaction' }),
    gas_cost_usdc: wire.decimalUsdc.openapi({
      description: 'Gas cost of the whole transaction, which the platform pays',
    }),
  })
  .openapi('ProviderBatch')

export const providerBatches = z
  .object({ batches: z.array(providerBatch), cursor: wire.cursorOut, indexedBlocks: wire.indexedBlocks })
  .openapi('ProviderBatches')

export type ProviderBatchRouteOptions = {
  sql: Database
  heads: RecordedHeads
  networks: GatewayNetworks
  settings: Pick<GatewaySettings, 'gasTokenUsd'>
}

export const addProviderBatchRoute = view('/providers/{id}/batches', {
  ...providerViews,
  summary: "Batches that paid any of the provider's wallets, newest first",
  query: batchesQuery,
  answer: ['The batches', providerBatches],
  open:
    ({ sql, heads, networks, settings: { gasTokenUsd } }: ProviderBatchRouteOptions) =>
    async ({ id: providerId, network, ...asked }) => {
      const chainId = networks.chainIdNamed(network)
      const indexedBlocks = await heads.ofProvider(providerId, chainId)
      const { rows, cursor } = await batchPositions.page('batches', asked, (page) =>
        listBatches(sql, { providerId, chainId }, page),
      )
      const byChain = Map.groupBy(rows, (batch) => batch.chainId)
      await Promise.all(
        [...byChain].flatMap(([id, batches]) => {
          const { served } = networks.ofChain(id)
          const indexedBlock = indexedBlocks[served.network.name] ?? 0
          return [addConfirmations(served, batches, indexedBlock), addGasTokenPrices(sql, served, batches)]
        }),
      )
      const batches = rows.map((batch) => ({
        ...toSettlementBatch(batch, gasTokenUsd),
        network: batch.chainId,
        batch_payment_count: batch.batchPaymentCount,
        gas_used: batch.gasUsed,
      }))
      return { batches, cursor, indexedBlocks }
    },
})
