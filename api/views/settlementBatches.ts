import { z } from '@hono/zod-openapi'
import { weiToUsd } from '#chain/settlementCost'
import { formatUsdc } from '#protocol/amount'
import { triggerOfCode } from '#protocol/settlement'
import type { App } from '../http/app.ts'
import { bigintField, createCursor, cutPage, integerField } from '../http/cursor.ts'
import { jsonAnswer } from '../http/problems.ts'
import { Refusal } from '../http/refusal.ts'
import { route } from '../http/route.ts'
import * as wire from '../http/wire.ts'
import type { RouteOptions } from '../routeOptions.ts'
import { type BatchRow, listBatches, toPosition } from './batchQueries.ts'
import { addConfirmations, addGasTokenPrices } from './blockFacts.ts'
import { requireKnownWallet } from './settlementQueue.ts'

const batchesQuery = z.object({
  wallet: wire.address.optional(),
  tx_hash: wire.txHash.optional(),
  limit: wire.limit,
  cursor: wire.cursor,
  network: wire.oneNetwork,
})

/** SPEC 2.8. */
export const settlementBatch = z
  .object({
    batch_id: z.int(),
    payment_count: z.int(),
    total_usdc: wire.decimalUsdc,
    gas_cost_usdc: wire.decimalUsdc,
    tx_hash: wire.hashOut,
    trigger_type: z.string(),
    created_at: wire.isoTime,
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

const getBatches = route('get', '/settlements/batches', {
  summary: 'Settled batches, the newest first',
  description:
    "With `wallet`, counts and sums are that wallet's own; with `tx_hash` alone, all provider wallets'.",
  tags: ['Settlements'],
  query: batchesQuery,
  refuses: [404],
  responses: { 200: jsonAnswer('The batches', settlementBatches) },
})

/** Where a page of batches ends. */
export const batchPositions = createCursor({
  blockTime: bigintField,
  position: bigintField,
  chainId: integerField,
})

export function addSettlementBatchRoute(app: App, { sql, heads, networks, settings }: RouteOptions): void {
  const { platformWallet, gasTokenUsd } = settings

  app.openapi(getBatches, async (c) => {
    const { wallet, tx_hash: txHash, limit = wire.defaultLimit, cursor, network: name } = c.req.valid('query')
    if (wallet === undefined && txHash === undefined) {
      throw new Refusal('invalid_request', 'query: wallet or tx_hash is needed')
    }
    const { served } = networks.named(name)
    const { chainId } = served.network
    const list = `batches ${chainId}`
    const after = batchPositions.read(list, cursor)
    const indexedBlock = (await heads.of(chainId)) ?? 0
    if (wallet !== undefined && wallet !== platformWallet) await requireKnownWallet(sql, { chainId, wallet })

    const found = await listBatches(sql, { chainId, wallet, txHash }, { after, limit: limit + 1 })
    const { page, last } = cutPage(found, limit)
    await Promise.all([addConfirmations(served, page, indexedBlock), addGasTokenPrices(sql, served, page)])
    return c.json(
      {
        batches: page.map((batch) => toSettlementBatch(batch, gasTokenUsd)),
        cursor: last && batchPositions.write(list, toPosition(last)),
        network: served.network.name,
        indexedBlock,
      },
      200,
    )
  })
}

/** @param gasTokenUsd USDC base units for 10^18 wei, if the price at its block isn't known */
export function toSettlementBatch(batch: BatchRow, gasTokenUsd: bigint) {
  return {
    batch_id: batch.sequence,
    payment_count: batch.paymentCount,
    total_usdc: formatUsdc(batch.total),
    gas_cost_usdc: formatUsdc(weiToUsd(batch.gasCost, batch.gasTokenUsd ?? gasTokenUsd)),
    tx_hash: batch.txHash,
    trigger_type: triggerOfCode(batch.triggerCode) ?? 'unknown',
    created_at: wire.isoOfSeconds(batch.blockTime),
    confirmed_at: wire.isoOrNull(batch.confirmedAt),
  }
}
