import { z } from '@hono/zod-openapi'
import { weiToUsd } from '@tollkeeper/chain/settlementCost'
import type { Database } from '@tollkeeper/ledger/store/database'
import { triggerOfCode } from '@tollkeeper/sdk/protocol/batchSettlement'
import { bigintField, createCursor, integerField } from '../http/cursor.ts'
import { Refusal } from '../http/refusal.ts'
import type { GatewaySettings } from '../http/settings.ts'
import { view } from '../http/view.ts'
import * as wire from '../http/wire.ts'
import type { RecordedHeads } from '../payments/records/recordedHeads.ts'
import type { GatewayNetworks } from '../registry/networks.ts'
import { listSettlements, type SettlementRow } from './batchQueries.ts'
import { addConfirmations, addGasTokenPrices } from './blockFacts.ts'
import { requireKnownWallet } from './settlementQueue.ts'

const batchesQuery = z.object({
  wallet: wire.address.optional(),
  tx_hash: wire.txHash.optional(),
  limit: wire.limit,
  cursor: wire.cursor,
  network: wire.oneNetwork,
})

/** A batch in answers, as conformance 2.8 defines it. */
export const settlementBatch = z
  .object({
    batch_id: z.int(),
    payment_count: z.int(),
    total_usdc: wire.decimalUsdc,
    gas_cost_usdc: wire.decimalUsdc,
    tx_hash: wire.hashOut,
    trigger_type: z.string(),
    created_at: wire.isoSeconds,
    confirmed_at: wire.isoTime.nullable(),
  })
  .openapi('SettlementBatch')

export const settlementBatches = z
  .object({
    batches: z.array(settlementBatch),
    cursor: wire.cursorOut,
    network: wire.networkName,
    indexedBlock: z.int(),
  })
  .openapi('SettlementBatches')

/** Where a page of batches ends. */
export const batchPositions = createCursor({
  blockTime: bigintField,
  position: bigintField,
  chainId: integerField,
})

export type SettlementBatchRouteOptions = {
  sql: Database
  heads: RecordedHeads
  networks: GatewayNetworks
  settings: Pick<GatewaySettings, 'platformWallet' | 'gasTokenUsd'>
}

export const addSettlementBatchRoute = view('/settlements/batches', {
  summary: 'Settled batches, newest first',
  description:
    'With `wallet`, counts and sums are those of this wallet; with `tx_hash` alone, those of all provider wallets.',
  tags: ['Settlements'],
  query: batchesQuery,
  refuses: [404],
  answer: ['The batches', settlementBatches],
  open:
    ({ sql, heads, networks, settings: { platformWallet, gasTokenUsd } }: SettlementBatchRouteOptions) =>
    async ({ wallet, tx_hash: txHash, network: name, ...asked }) => {
      if (wallet === undefined && txHash === undefined) {
        throw new Refusal('invalid_request', 'query: send wallet or tx_hash')
      }
      const { served } = networks.named(name)
      const { chainId, name: network } = served.network
      const indexedBlock = (await heads.of(chainId)) ?? 0
      if (wallet !== undefined && wallet !== platformWallet)
        await requireKnownWallet(sql, { chainId, wallet })
      const { rows, cursor } = await batchPositions.page(`batches ${chainId}`, asked, (page) =>
        listSettlements(sql, { chainId, wallet, txHash }, page),
      )
      await Promise.all([addConfirmations(served, rows, indexedBlock), addGasTokenPrices(sql, served, rows)])
      const batches = rows.map((batch) => toSettlementBatch(batch, gasTokenUsd))
      return { batches, cursor, network, indexedBlock }
    },
})

/**
 * Converts a batch to a {@link settlementBatch}.
 *
 * @param gasTokenUsd USDC base units for 10^18 wei, used if the price at the batch's block isn't known
 */
export function toSettlementBatch(batch: SettlementRow, gasTokenUsd: bigint) {
  return {
    batch_id: batch.sequence,
    payment_count: batch.paymentCount,
    total_usdc: batch.total,
    gas_cost_usdc: weiToUsd(batch.gasCost, batch.gasTokenUsd ?? gasTokenUsd),
    tx_hash: batch.txHash,
    trigger_type: triggerOfCode(batch.triggerCode) ?? 'unknown',
    created_at: batch.blockTime,
    confirmed_at: batch.confirmedAt,
  }
}
