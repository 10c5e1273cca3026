import { createRoute, z } from '@hono/zod-openapi'
import { weiToUsd } from '#chain/settlementCost'
import { estimatedSettlement, firedTrigger, type TriggerSettings } from '#ledger/triggers'
import { formatUsdc } from '#protocol/amount'
import { networkByChainId } from '#protocol/networks'
import { triggerOfCode } from '#protocol/settlement'
import type { App } from '../app.ts'
import { requireOwner } from '../http/authenticate.ts'
import { bigintField, createCursor, cutPage, integerField } from '../http/cursor.ts'
import { type Gateway, networkOf, requireNetwork } from '../http/gateway.ts'
import { jsonAnswer, problems } from '../http/problems.ts'
import { providerId } from '../http/schemas.ts'
import { type BlockFacts, readBlockFacts } from '../portal/queries/blockFacts.ts'
import { fromIndex, requireIndexedHead } from '../portal/queries/indexedHead.ts'
import { findPaymentTimeline, type PaymentTimeline } from '../portal/queries/paymentTimeline.ts'
import { findProviderBatches, type ProviderBatch } from '../portal/queries/providerBatches.ts'
import { requireProviderIndex } from '../portal/queries/providerIndex.ts'
import { noWork, readProviderWork, type WalletWork } from '../portal/queries/providerQueue.ts'
import { Refusal } from '../refusal.ts'
import { listWallets, type Wallet } from '../registry/wallets.ts'
import * as schemas from './settlingSchemas.ts'

const owner = { middleware: requireOwner, security: [{ apiKey: [] }], tags: ['Provider views'] }
const params = z.object({ id: providerId })

const getQueue = createRoute({
  ...owner,
  method: 'get',
  path: '/providers/{id}/queue',
  summary: 'What waits for each wallet, and how far each trigger is from firing',
  request: { params },
  responses: { 200: jsonAnswer('The queues', schemas.queue), ...problems(401, 403, 503) },
})

const getBatches = createRoute({
  ...owner,
  method: 'get',
  path: '/providers/{id}/batches',
  summary: "Batches that paid any of the provider's wallets, newest first",
  request: { params, query: schemas.batchesQuery },
  responses: { 200: jsonAnswer('The batches', schemas.batches), ...problems(400, 401, 403, 422, 503) },
})

const getTimeline = createRoute({
  ...owner,
  method: 'get',
  path: '/providers/{id}/payments/{paymentId}/timeline',
  summary: 'What a payment went through, from its challenge to its confirmation',
  request: { params: params.extend(schemas.timelineParams.shape) },
  responses: { 200: jsonAnswer('The timeline', schemas.timeline), ...problems(401, 403, 404, 503) },
})

const positions = createCursor({ blockTime: bigintField, sequence: integerField, chainId: integerField })

/** How far a provider's payments are on their way to its wallets. */
export function addSettlingRoutes(app: App, gateway: Gateway): void {
  const { database, settings } = gateway
  const { triggers } = settings

  app.openapi(getQueue, async (c) => {
    const { id } = c.req.valid('param')
    const now = new Date(gateway.now())
    const [indexedBlocks, all] = await Promise.all([
      requireProviderIndex(database, id),
      listWallets(database, id),
    ])
    const tokens = [...new Set(all.map(({ chainId }) => chainId))].map((chainId) => ({
      chainId,
      token: requireNetwork(gateway, chainId).served.token,
    }))
    const work = await fromIndex(readProviderWork(database, { providerId: id, tokens, now }))
    const wallets = all.map((wallet) =>
      toWalletQueue(wallet, work.get(wallet.walletId) ?? noWork, triggers, now),
    )
    return c.json({ wallets, asOf: now.toISOString(), indexedBlocks }, 200)
  })

  app.openapi(getBatches, async (c) => {
    const { id } = c.req.valid('param')
    const { network, cursor, limit = 20 } = c.req.valid('query')
    const chainId = network === undefined ? undefined : networkOf(gateway, network).served.network.chainId
    const after = positions.read('batches', cursor)
    const indexedBlocks = await requireProviderIndex(database, id, chainId)
    const found = await fromIndex(
      findProviderBatches(database, { providerId: id, chainId, after, limit: limit + 1 }),
    )
    const { page, last } = cutPage(found, limit)
    const facts = await readFacts(page, indexedBlocks)
    return c.json(
      {
        batches: page.map((batch) => toBatch(batch, facts.get(batch.blockHash), settings.gasTokenUsd)),
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
        const { served } = requireNetwork(gateway, chainId)
        const indexedBlock = BigInt(indexedBlocks[served.network.name] ?? 0)
        return readBlockFacts(database, served, { blocks, indexedBlock, gasTokenUsd: settings.gasTokenUsd })
      }),
    )
    return new Map(facts.flatMap((each) => [...each]))
  }

  app.openapi(getTimeline, async (c) => {
    const { id, paymentId } = c.req.valid('param')
    const life = await fromIndex(findPaymentTimeline(database, { providerId: id, paymentId }))
    if (life === undefined) throw new Refusal('unknown_payment')
    const { served } = requireNetwork(gateway, life.chainId)
    const head = await requireIndexedHead(database, life.chainId)
    const facts = life.mined
      ? await readBlockFacts(database, served, {
          blocks: [life.mined],
          indexedBlock: head.blockNumber,
          gasTokenUsd: settings.gasTokenUsd,
        })
      : undefined
    const confirmedAt = (life.mined && facts?.get(life.mined.blockHash)?.confirmedAt) ?? null
    const required = served.network.confirmations
    const above = life.mined ? Number(head.blockNumber - life.mined.blockNumber) : 0
    return c.json(
      {
        paymentId,
        ...toTimeline(life),
        confirmedAt: isoOrNull(confirmedAt),
        confirmations: Math.min(Math.max(above, 0), required),
        confirmationsRequired: required,
        indexedBlock: Number(head.blockNumber),
      },
      200,
    )
  })
}

function toPosition({ blockTime, sequence, chainId }: ProviderBatch) {
  return { blockTime: Number(blockTime), sequence, chainId }
}

function toWalletQueue(
  { walletId, address, chainId }: Wallet,
  { waiting, settlingPayments, settling, retryingPayments }: WalletWork,
  triggers: TriggerSettings,
  now: Date,
) {
  // Whether gas is dear just now is the keeper's to find out; both thresholds are shown.
  const fired = waiting && firedTrigger(waiting, triggers, 0n, now)
  const settlesAt = waiting && (fired === null ? estimatedSettlement(waiting, triggers) : now)
  const expiresAt = waiting && new Date(Number(waiting.firstValidBefore) * 1000)
  return {
    walletId,
    wallet: address,
    network: networkByChainId(chainId).name,
    payments: waiting?.paymentCount ?? 0,
    accumulated_usdc: formatUsdc(waiting?.amount ?? 0n),
    settlingPayments,
    settling_usdc: formatUsdc(settling),
    retryingPayments,
    fired,
    settlesAt: isoOrNull(settlesAt),
    triggers: {
      amount: {
        threshold_usdc: formatUsdc(triggers.amount),
        raised_threshold_usdc: formatUsdc(triggers.raisedAmount),
      },
      count: { threshold: triggers.count, raisedThreshold: triggers.raisedCount },
      time: {
        since: isoOrNull(waiting?.firstQueuedAt),
        at: isoOrNull(waiting && new Date(waiting.firstQueuedAt.getTime() + triggers.timeMs)),
        seconds: triggers.timeMs / 1000,
      },
      high_value: {
        largest_usdc: formatUsdc(waiting?.largestPayment ?? 0n),
        threshold_usdc: formatUsdc(triggers.highValue),
      },
      expiry: {
        validBefore: isoOrNull(expiresAt),
        at: isoOrNull(expiresAt && new Date(expiresAt.getTime() - triggers.expiryLeadMs)),
      },
    },
  }
}

function toBatch(batch: ProviderBatch, facts: BlockFacts | undefined, gasTokenUsd: bigint) {
  return {
    batch_id: batch.sequence,
    network: networkByChainId(batch.chainId).name,
    payment_count: batch.paymentCount,
    total_usdc: formatUsdc(batch.total),
    batch_payment_count: batch.batchPaymentCount,
    gas_used: batch.gasUsed.toString(),
    gas_cost_usdc: formatUsdc(weiToUsd(batch.gasCost, facts?.gasTokenUsd ?? gasTokenUsd)),
    tx_hash: batch.txHash,
    trigger_type: triggerOfCode(batch.triggerCode) ?? 'unknown',
    created_at: isoOfSeconds(batch.blockTime),
    confirmed_at: isoOrNull(facts?.confirmedAt),
  }
}

function toTimeline({ chainId, batches, failures, mined, ...times }: PaymentTimeline) {
  return {
    network: networkByChainId(chainId).name,
    challengedAt: times.challengedAt.toISOString(),
    acceptedAt: times.acceptedAt.toISOString(),
    publishedAt: isoOrNull(times.publishedAt),
    voidedAt: isoOrNull(times.voidedAt),
    failedAt: isoOrNull(times.failedAt),
    batches: batches.map(({ transactions, claimedAt, closedAt, ...batch }) => ({
      ...batch,
      claimedAt: claimedAt.toISOString(),
      closedAt: isoOrNull(closedAt),
      transactions: transactions.map(({ signedAt, broadcastAt, blockNumber, ...transaction }) => ({
        ...transaction,
        signedAt: signedAt.toISOString(),
        broadcastAt: isoOrNull(broadcastAt),
        blockNumber: blockNumber === null ? null : Number(blockNumber),
      })),
    })),
    failures: failures.map(({ failedAt, nextAttemptAt, ...failure }) => ({
      ...failure,
      failedAt: failedAt.toISOString(),
      nextAttemptAt: isoOrNull(nextAttemptAt),
    })),
    mined: mined && {
      at: isoOfSeconds(mined.blockTime),
      transactionHash: mined.txHash,
      blockNumber: Number(mined.blockNumber),
    },
  }
}

function isoOfSeconds(seconds: bigint): string {
  return new Date(Number(seconds) * 1000).toISOString()
}

function isoOrNull(time: Date | null | undefined): string | null {
  return time?.toISOString() ?? null
}
