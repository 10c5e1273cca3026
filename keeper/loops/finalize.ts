import { readEvidence } from '@tollkeeper/chain/evidence'
import { classifyRevert } from '@tollkeeper/chain/failures'
import { gasCostOf, readSettledBatches } from '@tollkeeper/chain/settledBatches'
import { readGasTokenPrice, weiToUsd } from '@tollkeeper/chain/settlementCost'
import { type BatchRow, readMinedBatches, recordOutcomes } from '@tollkeeper/ledger/batches/batches'
import { type BatchItem, readUnsettledItems } from '@tollkeeper/ledger/batches/items'
import { recordSweeps } from '@tollkeeper/ledger/batches/sweeps'
import { readTransactions, type TransactionRow } from '@tollkeeper/ledger/batches/transactions'
import { recordBatches, recordBlock, recordEvents } from '@tollkeeper/ledger/facts/record'
import type { Queryable } from '@tollkeeper/ledger/store/database'
import { outcomes as outcomeNames } from '@tollkeeper/sdk/protocol/batchSettlement'
import type { TransactionReceipt } from 'viem'
import { authorizationKey, readOutcomes, readSweeps, type Tried } from '../settler/outcomes.ts'
import type { Context } from './context.ts'
import { type ItemResult, moveBatch } from './moveBatch.ts'
import { unmineBatches } from './recorder.ts'

/**
 * Processes a network's mined batches: stores the results in their receipts, releases payments that they didn't settle, and closes batches
 * that are final. This needs no index.
 *
 * @param safeBlock the newest block that counts as final, or null while a reorg isn't processed completely
 */
export async function finalizeMined(context: Context, safeBlock: bigint | null): Promise<void> {
  const { sql, served, log, metrics, memory } = context
  const { chainId, name } = served.network
  const batches = await readMinedBatches(sql, chainId)
  // Forgets batches that another keeper has closed. Otherwise they would stay in memory.
  const open = new Set(batches.map(({ id }) => id))
  for (const known of [memory.judged, memory.mined])
    for (const id of known.keys()) if (!open.has(id)) known.delete(id)
  for (const batch of batches) {
    try {
      await finalizeBatch(context, batch, safeBlock)
    } catch (error) {
      metrics.loopErrors.inc({ network: name, loop: 'finalize' })
      log.warn({ err: error, batch: batch.batchId }, 'could not finalize the batch')
    }
  }
}

async function finalizeBatch(context: Context, batch: BatchRow, safeBlock: bigint | null): Promise<void> {
  const { sql, memory, log } = context
  const judged = memory.judged.get(batch.id)
  if (judged !== undefined && (safeBlock === null || judged > safeBlock)) return
  const transactions = await readTransactions(sql, batch.id)
  const mined = transactions.find((one) => one.minedBlock !== null)
  if (!mined || mined.minedBlock === null)
    throw new Error(`batch ${batch.batchId} has the state mined, but none of its transactions is mined`)
  const block = mined.minedBlock
  if (judged === undefined) {
    if (!(await judgeItems(context, batch, mined, block))) return
    memory.mined.delete(batch.id)
  }
  if (safeBlock === null || block > safeBlock) return
  const isClosed = await moveBatch(context, batch, {
    from: 'mined',
    to: { result: isSettlement(mined) ? 'settled' : mined.succeeded ? 'nothing_left' : 'reverted' },
    others: 'settled',
  })
  memory.judged.delete(batch.id)
  if (isClosed) log.info({ batch: batch.batchId, hash: mined.hash }, 'batch closed')
}

function isSettlement({ succeeded, kind }: TransactionRow): boolean {
  return succeeded === true && kind !== 'cancellation'
}

/**
 * Records the results in the receipt, and releases every item that isn't fully settled, with the reason.
 *
 * @returns whether the receipt's block is still part of the chain
 */
async function judgeItems(
  context: Context,
  batch: BatchRow,
  mined: TransactionRow,
  block: bigint,
): Promise<boolean> {
  const { served, checkpoint, memory, metrics, log } = context
  const { chainId, token, id } = batch
  const { hash, timestamp } = await served.client.getBlock({ blockNumber: block })
  const seen = memory.mined.get(id)
  const receipt =
    seen?.blockHash === hash ? seen : await served.client.getTransactionReceipt({ hash: mined.hash })
  if (mined.minedBlockHash !== null && hash !== mined.minedBlockHash)
    await unmineBatches(context, { blockHash: mined.minedBlockHash })
  if (hash !== mined.minedBlockHash || receipt.blockHash !== hash) return false
  const evidence = readEvidence(receipt, served, timestamp)
  const outcomes = isSettlement(mined) ? readOutcomes(served.deployment, batch.batchId, mined, receipt) : null
  let settled = 0
  const { splitterFactory: factory } = served.deployment
  const numbered = readSettledBatches(receipt, served, timestamp).map((one) => ({
    ...one,
    sequence: null,
  }))
  const sweeps = readSweeps(receipt, { factory, token })
  if (sweeps.failed.length > 0) log.warn({ batch: batch.batchId, splitters: sweeps.failed }, 'sweeps failed')
  const record = async (tx: Queryable): Promise<ItemResult[]> => {
    // The block is recorded even if it has none of our events, because the keeper must notice a reorg that drops it.
    await recordBlock(tx, chainId, { blockNumber: block, blockHash: hash, blockTime: timestamp })
    await recordSweeps(tx, { chainId, token }, { block, ...sweeps }, context.now())
    await recordEvents(tx, { chainId, token }, evidence, 'receipt')
    await recordBatches(tx, { chainId, token }, numbered)
    const items = await readUnsettledItems(tx, id)
    settled = items.settled
    const tried = items.unsettled.length > 0 ? await outcomes?.readTried() : undefined
    const results: ItemResult[] = []
    for (const item of items.unsettled) {
      const halves = triedOf(tried, item)
      if (halves.provider || halves.fee) await recordOutcomes(tx, id, item.position, digitsOf(halves))
      results.push(resultOf(item, halves))
    }
    return results
  }
  await checkpoint('before-finalization')
  const others = isSettlement(mined) ? 'stay' : { failure: 'deferred' }
  await moveBatch(context, batch, { from: 'mined', to: null, record, others })
  memory.judged.set(id, block)
  await checkpoint('after-finalization')
  if (settled > 0) {
    metrics.attempts.inc({ network: served.network.name, result: 'settled' }, settled)
    await reportCost(context, receipt, settled)
  }
  return true
}

/** The results of an item's authorizations in our transaction; null for an authorization that the transaction didn't try. */
type TriedHalves = { provider: Tried | null; fee: Tried | null }

function triedOf(tried: ReadonlyMap<string, Tried> | undefined, { provider, fee }: BatchItem): TriedHalves {
  const of = ({ authorization }: BatchItem['provider']) => tried?.get(authorizationKey(authorization)) ?? null
  return { provider: of(provider), fee: fee && of(fee) }
}

function digitsOf({ provider, fee }: TriedHalves): { provider: number; fee: number } {
  const digitOf = (tried: Tried | null) => (tried ? outcomeNames.indexOf(tried.outcome) : 0)
  return { provider: digitOf(provider), fee: digitOf(fee) }
}

/** Returns the result of an item that our transaction didn't settle in full. */
function resultOf(item: BatchItem, { provider, fee }: TriedHalves): ItemResult {
  for (const tried of [provider, fee]) {
    if (tried?.outcome !== 'failed') continue
    const failure = classifyRevert(tried.reason ?? '0x')
    if (failure.owner === 'payment') return { item, reason: 'failed', failure }
  }
  const isUsed = provider?.outcome === 'used' || fee?.outcome === 'used'
  return { item, reason: isUsed ? 'nonce_used' : 'unsettled' }
}

async function reportCost(context: Context, receipt: TransactionReceipt, payments: number): Promise<void> {
  const { served, settings, metrics } = context
  const network = served.network.name
  const { usdPerToken } = await readGasTokenPrice(served.client, served.network, settings.gasTokenUsd)
  const usd = weiToUsd(gasCostOf(receipt), usdPerToken)
  metrics.gasPerPayment.observe({ network }, Number(receipt.gasUsed / BigInt(payments)))
  metrics.usdPerPayment.observe({ network }, Number(usd) / 1_000_000 / payments)
}
