import type { TransactionReceipt } from 'viem'
import { classifyRevert, type Failure } from '#chain/failures'
import { findMined, isCanonical } from '#chain/receipts'
import { readGasTokenPrice, weiToUsd } from '#chain/settlementCost'
import {
  type BatchRow,
  lockBatch,
  readMinedBatches,
  recordOutcome,
  releaseItem,
  setBatchState,
} from '#ledger/batches'
import { concludeBatchPayments } from '#ledger/conclusions'
import type { Queryable } from '#ledger/database'
import { recordFailure } from '#ledger/failures'
import { raiseActedBlock } from '#ledger/indexedHead'
import type { IndexState } from '#ledger/indexState'
import { type BatchItem, readBatchItems } from '#ledger/items'
import { deferPayments, requestChainLookup } from '#ledger/queue'
import { markMined, markUnmined, readTransactions, type TransactionRow } from '#ledger/transactions'
import { ChainUnavailable } from '#process/dependencies'
import { outcomes as outcomeNames } from '#protocol/settlement'
import { authorizationKey, readOutcomes, type Tried } from '../settler/outcomes.ts'
import type { Context } from './context.ts'
import { endBatch } from './endBatch.ts'

/** The chain's word and the index's may differ for this long before a payment is looked at again. */
const putOffMs = 5_000
const lookAgainMs = 1_000

/**
 * Goes through a network's mined batches: notices those that a reorg dropped, reads from the index what became of each
 * payment, and closes what is too deep to be dropped.
 */
export async function concludeMined(context: Context, index: IndexState): Promise<void> {
  const { sql, served, log, metrics } = context
  const { chainId, name } = served.network
  const batches = await readMinedBatches(sql, chainId)
  // Those that another keeper has closed meanwhile would be remembered for ever.
  const open = new Set(batches.map(({ id }) => id))
  for (const id of context.memory.settled.keys()) if (!open.has(id)) context.memory.settled.delete(id)
  if (batches.length === 0 || (await isUnchanged(context, batches, index))) return
  for (const batch of batches) {
    try {
      await concludeBatch(context, batch, index)
    } catch (error) {
      context.memory.concluded = null
      metrics.loopErrors.inc({ network: name, loop: 'conclude' })
      log.warn({ err: error, batch: batch.batchId }, 'could not conclude the batch')
    }
  }
}

/** With the same head, index and batches there is nothing new to be seen, for a while. */
async function isUnchanged(
  { served, memory }: Context,
  batches: readonly BatchRow[],
  index: IndexState,
): Promise<boolean> {
  const { hash } = await served.client.getBlock()
  const seen = [hash, index.status, index.head?.blockNumber, ...batches.map(({ id }) => id)].join()
  const at = performance.now()
  if (memory.concluded?.seen === seen && at - memory.concluded.at < lookAgainMs) return true
  memory.concluded = { seen, at }
  return false
}

async function concludeBatch(context: Context, batch: BatchRow, index: IndexState): Promise<void> {
  const { sql, served } = context
  const transactions = await readTransactions(sql, batch.id)
  const mined = transactions.find((one) => one.minedBlock !== null)
  if (!mined || mined.minedBlock === null || mined.minedBlockHash === null) {
    throw new Error(`batch ${batch.batchId} is mined without a mined transaction`)
  }

  const canonical = await isCanonical(served.client, mined.minedBlock, mined.minedBlockHash)
  if (canonical !== true) {
    await followReorg(context, batch, transactions)
    return
  }
  if (index.status !== 'current' || index.head.blockNumber < mined.minedBlock) return

  if (context.memory.settled.get(batch.id) !== mined.minedBlockHash)
    await concludeItems(context, batch, mined)
  if (index.head.blockNumber >= mined.minedBlock + context.finalityBlocks)
    await closeDeep(context, batch, mined)
}

/** The block it was mined in is gone: it stands in another one, or waits to be mined again. */
async function followReorg(context: Context, batch: BatchRow, transactions: TransactionRow[]): Promise<void> {
  const { sql, served, log, metrics, checkpoint } = context
  const found = await findMined(
    served.clients,
    transactions.map((one) => one.hash),
  ).catch((error: unknown) => {
    if (error instanceof ChainUnavailable) return undefined
    throw error
  })
  context.memory.settled.delete(batch.id)
  // An RPC failed: nothing can be concluded from not finding it.
  if (found === undefined) return
  await checkpoint('before-reorg-recorded')
  await sql.begin(async (tx) => {
    if (!(await lockBatch(tx, batch.id, 'mined'))) return
    await markUnmined(tx, batch.id)
    if (found) {
      const { blockNumber, blockHash, status } = found.receipt
      await markMined(tx, found.hash, { blockNumber, blockHash, succeeded: status === 'success' })
      await raiseActedBlock(tx, served.network.chainId, blockNumber)
    } else await setBatchState(tx, batch.id, 'reorged')
  })
  await checkpoint('after-reorg-recorded')
  metrics.reorgs.inc({ network: served.network.name })
  log.warn({ batch: batch.batchId, minedAgain: found?.hash ?? null }, 'a reorg dropped the block of a batch')
}

/** Lets go of every item that isn't settled in full, for the reason that our own transaction shows. */
async function concludeItems(context: Context, batch: BatchRow, mined: TransactionRow): Promise<void> {
  const { sql, served, checkpoint, metrics } = context
  const items = await readBatchItems(sql, batch.id)
  const unsettled = items.filter((item) => !isOver(item))
  const receipt = await served.client.getTransactionReceipt({ hash: mined.hash })
  if (unsettled.length === 0) {
    if (mined.minedBlockHash !== null) context.memory.settled.set(batch.id, mined.minedBlockHash)
    metrics.attempts.inc({ network: served.network.name, result: 'settled' }, items.length)
    await reportCost(context, receipt, items.length)
    return
  }

  const isSettle = mined.succeeded && mined.kind !== 'cancellation'
  const tried = isSettle
    ? readOutcomes(served.deployment.batchSettlement, batch.batchId, mined, receipt)
    : new Map<string, Tried>()
  const concludeAll = async (tx: Queryable) => {
    for (const item of unsettled) await concludeItem(context, tx, batch, item, tried)
  }
  await checkpoint('before-conclusion')
  if (isSettle) {
    await sql.begin(async (tx) => {
      if (await lockBatch(tx, batch.id, 'mined')) await concludeAll(tx)
    })
  } else {
    const outcome = mined.kind === 'cancellation' ? 'nothing_left' : 'reverted'
    await endBatch(context, batch, { from: 'mined', outcome, failure: 'deferred', before: concludeAll })
  }
  await checkpoint('after-conclusion')
}

function isOver(item: BatchItem): boolean {
  return item.provider.state === 'settled' && (item.fee === null || item.fee.state === 'settled')
}

async function concludeItem(
  context: Context,
  tx: Queryable,
  batch: BatchRow,
  item: BatchItem,
  tried: Map<string, Tried>,
): Promise<void> {
  const { now, settings, metrics, served, log } = context
  const { position, paymentId } = item
  const provider = outcomeOf(tried, item.provider)
  const fee = item.fee ? outcomeOf(tried, item.fee) : null

  // The transaction says settled and the index says open: one of them is wrong, and neither may be acted on.
  const disagrees = [
    [item.provider, provider],
    [item.fee, fee],
  ] as const
  if (disagrees.some(([half, seen]) => half?.state === 'open' && seen?.outcome === 'settled')) {
    log.warn({ batch: batch.batchId, payment: paymentId }, 'settled by its transaction, open by the index')
    return
  }

  if (provider || fee) {
    await recordOutcome(tx, batch.id, position, { provider: digitOf(provider), fee: digitOf(fee) })
  }
  if (!(await releaseItem(tx, batch.id, position)) || paymentId === null) return

  const failure = failureOf(item, provider, fee)
  if (failure) {
    const { code, detail, isFinal } = failure
    const attempts = await recordFailure(
      tx,
      { paymentId, batchId: batch.id, code, detail, isFinal },
      { now: now(), leadMs: settings.triggers.expiryLeadMs },
    )
    metrics.attempts.inc({ network: served.network.name, result: code })
    log.warn({ payment: paymentId, batch: batch.batchId, code, attempts }, 'settlement failed on chain')
    return
  }
  if (provider?.outcome === 'used' || fee?.outcome === 'used') {
    await requestChainLookup(tx, paymentId, now())
    await deferPayments(tx, [paymentId], new Date(now().getTime() + putOffMs))
  }
}

/** The failure that is the payment's own, if there is one. */
function failureOf(
  item: BatchItem,
  provider: Tried | null,
  fee: Tried | null,
): (Pick<Failure, 'code' | 'detail'> & { isFinal: boolean }) | null {
  const { state } = item.provider
  if (state === 'cancelled')
    return { code: 'authorization_cancelled', detail: 'cancelled by the payer', isFinal: true }
  if (state === 'foreign_use')
    return { code: 'authorization_used', detail: 'its nonce paid for something else', isFinal: true }
  for (const tried of [provider, fee]) {
    if (tried?.outcome !== 'failed') continue
    const failure = classifyRevert(tried.reason ?? '0x')
    if (failure.owner === 'payment') return { ...failure, isFinal: false }
  }
  return null
}

function digitOf(tried: Tried | null): number {
  return tried ? outcomeNames.indexOf(tried.outcome) : 0
}

function outcomeOf(tried: Map<string, Tried>, half: NonNullable<BatchItem['fee']>): Tried | null {
  return tried.get(authorizationKey(half.authorization)) ?? null
}

async function reportCost(context: Context, receipt: TransactionReceipt, payments: number): Promise<void> {
  const { served, settings, metrics } = context
  if (payments === 0) return
  const network = served.network.name
  const { usdPerToken } = await readGasTokenPrice(
    served.client,
    served.network.ethUsdFeed,
    settings.gasTokenUsd,
  )
  const l1Fee = 'l1Fee' in receipt && typeof receipt.l1Fee === 'bigint' ? receipt.l1Fee : 0n
  const usd = weiToUsd(receipt.gasUsed * receipt.effectiveGasPrice + l1Fee, usdPerToken)
  metrics.gasPerPayment.observe({ network }, Number(receipt.gasUsed / BigInt(payments)))
  metrics.usdPerPayment.observe({ network }, Number(usd) / 1_000_000 / payments)
}

/** Too deep for a reorg that we'd have to heal: its payments are concluded, its nonce is over. */
async function closeDeep(context: Context, batch: BatchRow, mined: TransactionRow): Promise<void> {
  const { sql, now, log } = context
  const items = await readBatchItems(sql, batch.id)
  if (items.some((item) => !isOver(item))) return
  const isClosed = await endBatch(context, batch, {
    from: 'mined',
    outcome: 'settled',
    before: (tx) => concludeBatchPayments(tx, batch.id, now()),
  })
  context.memory.settled.delete(batch.id)
  if (isClosed) log.info({ batch: batch.batchId, hash: mined.hash }, 'batch closed')
}
