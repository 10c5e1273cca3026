import { createRoute, z } from '@hono/zod-openapi'
import type { Database } from '#ledger/store/database'
import { networkByChainId } from '#protocol/networks'
import type { App } from '../http/app.ts'
import { ownersOnly } from '../http/authenticate.ts'
import { bigintField, createCursor, cutPage, integerField } from '../http/cursor.ts'
import { jsonAnswer, problems } from '../http/problems.ts'
import type { GatewaySettings } from '../http/settings.ts'
import {
  cursor,
  cursorOut,
  decimalUsdc,
  defaultLimit,
  indexedBlocks,
  limit,
  networkName,
  ofProvider,
} from '../http/wire.ts'
import { type BlockFacts, readBlockFacts } from '../portal/queries/blockFacts.ts'
import { fromIndex, type IndexedHeads } from '../portal/queries/indexedHead.ts'
import { findProviderBatches, type ProviderBatch } from '../portal/queries/providerBatches.ts'
import type { GatewayNetworks } from '../registry/networks.ts'
import { settlementBatch, toSettlementBatch } from './settlementBatches.ts'

const batchesQuery = z.object({ network: networkName.optional(), limit, cursor })

const providerBatch = settlementBatch
  .extend({
    network: networkName,
    payment_count: z.int().openapi({ description: "The provider's own, in all its wallets" }),
    batch_payment_count: z.int().openapi({ description: "Everybody's in this batch" }),
    gas_used: z.string().openapi({ example: '9104312', description: 'Of the whole transaction' }),
    gas_cost_usdc: decimalUsdc.openapi({ description: 'Of the whole transaction; the platform pays it' }),
  })
  .openapi('ProviderBatch')

export const providerBatches = z
  .object({ batches: z.array(providerBatch), cursor: cursorOut, indexedBlocks })
  .openapi('ProviderBatches')

const getBatches = createRoute({
  ...ownersOnly,
  tags: ['Provider views'],
  method: 'get',
  path: '/providers/{id}/batches',
  summary: "Batches that paid any of the provider's wallets, newest first",
  request: { params: ofProvider, query: batchesQuery },
  responses: { 200: jsonAnswer('The batches', providerBatches), ...problems(400, 401, 403, 422, 503) },
})

const positions = createCursor({ blockTime: bigintField, sequence: integerField, chainId: integerField })

export type ProviderBatchRouteOptions = {
  sql: Database
  heads: IndexedHeads
  networks: GatewayNetworks
  settings: Pick<GatewaySettings, 'gasTokenUsd'>
}

export function addProviderBatchRoute(
  app: App,
  { sql, heads, networks, settings: { gasTokenUsd } }: ProviderBatchRouteOptions,
): void {
  app.openapi(getBatches, async (c) => {
    const providerId = c.req.valid('param').id
    const { network, cursor, limit = defaultLimit } = c.req.valid('query')
    const chainId = networks.chainIdNamed(network)
    const after = positions.read('batches', cursor)
    const indexedBlocks = await heads.requireOfProvider(providerId, chainId)
    const found = await fromIndex(findProviderBatches(sql, { providerId, chainId, after, limit: limit + 1 }))
    const { page, last } = cutPage(found, limit)
    const facts = await readFacts(page, indexedBlocks)
    return c.json(
      {
        batches: page.map((batch) => toProviderBatch(batch, facts.get(batch.blockHash), gasTokenUsd)),
        cursor: last && positions.write('batches', toPosition(last)),
        indexedBlocks,
      },
      200,
    )
  })

  async function readFacts(batches: ProviderBatch[], indexedBlocks: Record<string, number>) {
    const byChain = Map.groupBy(batches, ({ chainId }) => chainId)
    const facts = await Promise.all(
      [...byChain].map(([chainId, blocks]) => {
        const { served } = networks.ofChain(chainId)
        const indexedBlock = BigInt(indexedBlocks[served.network.name] ?? 0)
        return readBlockFacts(sql, served, { blocks, indexedBlock, gasTokenUsd })
      }),
    )
    return new Map(facts.flatMap((each) => [...each]))
  }
}

function toPosition({ blockTime, sequence, chainId }: ProviderBatch) {
  return { blockTime: Number(blockTime), sequence, chainId }
}

function toProviderBatch(batch: ProviderBatch, facts: BlockFacts | undefined, gasTokenUsd: bigint) {
  return {
    ...toSettlementBatch(batch, facts?.confirmedAt ?? null, facts?.gasTokenUsd ?? gasTokenUsd),
    network: networkByChainId(batch.chainId).name,
    batch_payment_count: batch.batchPaymentCount,
    gas_used: batch.gasUsed.toString(),
  }
}
