import { readEvidence } from '@tollkeeper/chain/evidence'
import { classifyRevert, type Failure } from '@tollkeeper/chain/failures'
import { gasCostOf, readSettledBatches } from '@tollkeeper/chain/settledBatches'
import { readGasTokenPrice, weiToUsd } from '@tollkeeper/chain/settlementCost'
import { type BatchRow, lockBatch, readMinedBatches, recordOutcome } from '@tollkeeper/ledger/batches/batches'
import { type BatchItem, readUnsettledItems } from '@tollkeeper/ledger/batches/items'
import { recordSweeps } from '@tollkeeper/ledger/batches/sweeps'
import { readTransactions, type TransactionRow } from '@tollkeeper/ledger/batches/transactions'
import { recordBatches, recordBlock, recordEvents, requestLookups } from '@tollkeeper/ledger/facts/record'
import { endSettled } from '@tollkeeper/ledger/outcomes/conclusions'
import { deferPayments, releasePayments } from '@tollkeeper/ledger/queue/stages'
import type { Queryable } from '@tollkeeper/ledger/store/database'
import { outcomes as outcomeNames } from '@tollkeeper/sdk/protocol/settlement'
import type { TransactionReceipt } from 'viem'
import { authorizationKey, readOutcomes, readSweeps, type Tried } from '../settler/outcomes.ts'
import type { Context } from './context.ts'
import { endBatch, letGo } from './endBatch.ts'
import { failPayment } from './failPayment.ts'
import { unmineBatches } from './recorder.ts'
import { reconcileChosen } from './reconcile.ts'

/** How long a payment is deferred whose half an unknown transaction used. */
const deferMs = 5_000

/**
 * Goes through a network's mined batches: stores what their receipts show, lets go of what they didn't settle, and
 * closes those that are final. It doesn't need the index.
 *
 * @param safeBlock Everything up to here that we have acted on is final; null while that isn't known.
 */
export async function concludeMined(context: Context, safeBlock: bigint | null): Promise<void> {
  const { sql, served, log, metrics, memory } = context
  const { chainId, name } = served.network
  const batches = await readMinedBatches(sql, chainId)
  // Batches that another keeper has closed meanwhile would be remembered for ever.
  const open = new Set(batches.map(({ id }) => id))
  for (const known of [memory.judged, memory.mined])
    for (const id of known.keys()) if (!open.has(id)) known.delete(id)
  for (const batch of batches) {
    try {
      await concludeBatch(context, batch, safeBlock)
    } catch (error) {
      metrics.loopErrors.inc({ network: name, loop: 'conclude' })
      log.warn({ err: error, batch: batch.batchId }, 'could not conclude the batch')
    }
  }
}

async function concludeBatch(context: Context, batch: BatchRow, safeBlock: bigint | null): Promise<void> {
  const { sql, memory, now, log } = context
  const judged = memory.judged.get(batch.id)
  if (judged !== undefined && (safeBlock === null || judged > safeBlock)) return
  const transactions = await readTransactions(sql, batch.id)
  const mined = transactions.find((one) => one.minedBlock !== null)
  if (!mined || mined.minedBlock === null)
    throw new Error(`batch ${batch.batchId} is mined without a mined transaction`)
  const block = mined.minedBlock
  if (judged === undefined) {
    if (!(await judgeItems(context, batch, mined, block))) return
    memory.mined.delete(batch.id)
  }
  if (safeBlock === null || block > safeBlock) return
  const isClosed = await endBatch(context, batch, {
    from: 'mined',
    outcome: isSettlement(mined) ? 'settled' : mined.succeeded ? 'nothing_left' : 'reverted',
    before: (tx) => endSettled(tx, batch.id, now()),
  })
  memory.judged.delete(batch.id)
  if (isClosed) log.info({ batch: batch.batchId, hash: mined.hash }, 'batch closed')
}

function isSettlement({ succeeded, kind }: TransactionRow): boolean {
  return succeeded === true && kind !== 'cancellation'
}

/**
 * Records what the receipt shows, and lets go of every item that isn't fully settled, with the reason.
 *
 * @returns whether its block stands.
 */
async function judgeItems(
  context: Context,
  batch: BatchRow,
  mined: TransactionRow,
  block: bigint,
): Promise<boolean> {
  const { sql, served, checkpoint, memory, metrics, log } = context
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
  const judge = async (tx: Queryable) => {
    // It may show nothing of ours, but a reorg that takes it must be noticed.
    await recordBlock(tx, chainId, { blockNumber: block, blockHash: hash, blockTime: timestamp })
    await recordSweeps(tx, { chainId, token }, { block, ...sweeps }, context.now())
    await recordEvents(tx, { chainId, token }, evidence, 'receipt')
    await recordBatches(tx, { chainId, token }, numbered)
    const items = await readUnsettledItems(tx, id)
    settled = items.settled
    const left: string[] = []
    const tried = items.unsettled.length > 0 ? await outcomes?.readTried() : undefined
    for (const item of items.unsettled)
      left.push(...(await releaseUnsettled(context, tx, batch, item, outcomeOf(tried, item))))
    await reconcileChosen(context, tx, left)
  }
  await checkpoint('before-conclusion')
  await sql.begin(async (tx) => {
    if (!(await lockBatch(tx, id, 'mined'))) return
    await judge(tx)
    if (!isSettlement(mined)) await letGo(context, tx, batch, { failure: 'deferred' })
  })
  memory.judged.set(id, block)
  await checkpoint('after-conclusion')
  if (settled > 0) {
    metrics.attempts.inc({ network: served.network.name, result: 'settled' }, settled)
    await reportCost(context, receipt, settled)
  }
  return true
}

/** @returns its payment, unless an attempt was counted for it: then the reconciliation decides whether it is over. */
async function releaseUnsettled(
  context: Context,
  tx: Queryable,
  batch: BatchRow,
  { position, paymentId }: BatchItem,
  outcome: ItemOutcome,
): Promise<string[]> {
  const { now } = context
  const { provider, fee } = outcome
  if (provider || fee)
    await recordOutcome(tx, batch.id, position, { provider: digitOf(provider), fee: digitOf(fee) })
  const released = await releasePayments(tx, batch.id, now(), [position])
  if (released.length === 0 || paymentId === null) return []

  const failure = failureOf(outcome)
  if (failure) {
    await failPayment(context, tx, { ...failure, paymentId, batchId: batch.id, isFinal: false })
    return []
  }
  if (provider?.outcome === 'used' || fee?.outcome === 'used') {
    await requestLookups(tx, [paymentId], now())
    await deferPayments(tx, [paymentId], new Date(now().getTime() + deferMs))
  }
  return [paymentId]
}

function digitOf(tried: ItemOutcome['provider']): number {
  return tried ? outcomeNames.indexOf(tried.outcome) : 0
}

type ItemOutcome = { provider: Tried | null; fee: Tried | null }

function outcomeOf(tried: ReadonlyMap<string, Tried> | undefined, { provider, fee }: BatchItem): ItemOutcome {
  const of = ({ authorization }: BatchItem['provider']) => tried?.get(authorizationKey(authorization)) ?? null
  return { provider: of(provider), fee: fee && of(fee) }
}

/** The failure that the payment itself caused, if there is one. */
function failureOf({ provider, fee }: ItemOutcome): Pick<Failure, 'code' | 'detail'> | null {
  for (const tried of [provider, fee]) {
    if (tried?.outcome !== 'failed') continue
    const failure = classifyRevert(tried.reason ?? '0x')
    if (failure.owner === 'payment') return failure
  }
  return null
}

async function reportCost(context: Context, receipt: TransactionReceipt, payments: number): Promise<void> {
  const { served, settings, metrics } = context
  const network = served.network.name
  const { usdPerToken } = await readGasTokenPrice(
    served.client,
    served.network.ethUsdFeed,
    settings.gasTokenUsd,
  )
  const usd = weiToUsd(gasCostOf(receipt), usdPerToken)
  metrics.gasPerPayment.observe({ network }, Number(receipt.gasUsed / BigInt(payments)))
  metrics.usdPerPayment.observe({ network }, Number(usd) / 1_000_000 / payments)
}
