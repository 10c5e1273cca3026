import type { Context } from 'ponder:registry'
import {
  authorization,
  batch,
  batchRecipient,
  indexGap,
  keeperDay,
  missingReceipt,
  payout,
} from 'ponder:schema'
import { type Hex, hexToBigInt } from 'viem'
import type { FoundReceipt } from './fetchReceipt.ts'
import {
  type AuthorizationEntry,
  countPayments,
  type Reading,
  readBatchSettled,
  shareOf,
  type Unreadable,
} from './receipt.ts'

type Db = Context['db']

/** The transaction and block of an event. */
export type Place = {
  chainId: number
  txHash: Hex
  blockNumber: bigint
  blockHash: Hex
  blockTime: bigint
}

/**
 * Writes one batch and the facts that its part of the receipt proves.
 *
 * @param sequence the batch's number among the chain's batches
 */
export async function recordBatch(
  db: Db,
  place: Place,
  logIndex: number,
  sequence: number,
  { receipt, reading }: FoundReceipt,
): Promise<void> {
  const { event, totals } = readBatchSettled(receipt.logs, logIndex)
  const { entries, unreadable, payouts } = shareOf(reading, logIndex)
  await recordAuthorizations(db, place, event.token, entries)
  for (const paidOut of payouts) await db.insert(payout).values({ ...place, token: event.token, ...paidOut })
  for (const item of unreadable) await setAside(db, place, item)

  let providerTotal = 0n
  let feeTotal = 0n
  let authorizations = 0
  const received = new Map<Hex, { paymentCount: number; total: bigint }>()
  for (const entry of entries) {
    if (entry.state !== 'used' || entry.batchLogIndex !== logIndex) continue
    authorizations += 1
    if (entry.half === 'fee') feeTotal += entry.value
    else providerTotal += entry.value
    const sum = received.get(entry.recipient) ?? { paymentCount: 0, total: 0n }
    received.set(entry.recipient, {
      paymentCount: sum.paymentCount + 1,
      total: sum.total + entry.value,
    })
  }
  const paidByTabs = reading.paidByTabs.get(logIndex)
  if (paidByTabs) {
    providerTotal = totals.providerTotal
    feeTotal = totals.feeTotal
  }
  const gasUsed = hexToBigInt(receipt.gasUsed)
  const effectiveGasPrice = hexToBigInt(receipt.effectiveGasPrice)
  const l1Fee = receipt.l1Fee ? hexToBigInt(receipt.l1Fee) : null
  const counts = { authorizations, paymentCount: countPayments(event.outcomes) }
  await db.insert(batch).values({
    ...place,
    ...event,
    ...counts,
    logIndex,
    sequence,
    providerTotal,
    feeTotal,
    gasUsed,
    effectiveGasPrice,
    l1Fee,
  })
  const paid = paidByTabs ?? received
  if (paid.size > 0) {
    const { blockHash, ...ofBatch } = { ...place, logIndex, sequence }
    const rows = [...paid].map(([recipient, sum]) => ({ ...ofBatch, recipient, ...sum }))
    await db.insert(batchRecipient).values(rows)
  }

  // The gas belongs to the whole transaction, so it is counted only with the transaction's first batch.
  const isFirst = reading.batches[0] === logIndex
  const gasCost = gasUsed * effectiveGasPrice + (l1Fee ?? 0n)
  await countForKeeper(db, place, event.keeper, {
    paymentCount: counts.paymentCount,
    total: providerTotal + feeTotal,
    gasUsed: isFirst ? gasUsed : 0n,
    gasCost: isFirst ? gasCost : 0n,
  })
}

/**
 * Writes the payout or payment to which a transfer to the platform belongs, in a transaction without a batch. For a payment, writes all
 * authorizations of the transaction, because a stranger may send both authorizations of a payment in one transaction. For a plain transfer, writes
 * nothing.
 */
export async function recordTransfer(
  db: Db,
  place: Place,
  token: Hex,
  logIndex: number,
  { entries, unreadable, batches, payouts }: Reading,
): Promise<void> {
  if (batches.length > 0) return // the events of the batches record everything
  const paidOut = payouts.find((one) => one.logIndex === logIndex)
  if (paidOut) await db.insert(payout).values({ ...place, token, ...paidOut })
  const own = entries.find((entry) => entry.state === 'used' && entry.logIndex === logIndex - 1)
  if (own === undefined) return
  // If a transaction has several fees, the first fee's event has recorded everything.
  const { authorizer, nonce } = own
  const isRecorded = await db.find(authorization, { chainId: place.chainId, token, authorizer, nonce })
  if (isRecorded) return
  await recordAuthorizations(db, place, token, entries)
  for (const item of unreadable) await setAside(db, place, item)
}

/**
 * Writes authorizations without first checking whether they are stored already. They can't be, because the token uses a nonce only once, and exactly
 * one event records each authorization. In a new block, the check would cost a query for each of a batch's three hundred authorizations.
 */
async function recordAuthorizations(
  db: Db,
  place: Place,
  token: Hex,
  entries: readonly AuthorizationEntry[],
): Promise<void> {
  if (entries.length === 0) return
  await db
    .insert(authorization)
    .values(entries.map(({ half: _, ...entry }) => ({ ...place, token, ...entry })))
}

const daySeconds = 86_400n

async function countForKeeper(
  db: Db,
  { chainId, blockTime }: Place,
  address: Hex,
  more: { paymentCount: number; total: bigint; gasUsed: bigint; gasCost: bigint },
): Promise<void> {
  const day = blockTime - (blockTime % daySeconds)
  await db
    .insert(keeperDay)
    .values({ chainId, day, address, batchCount: 1, ...more, lastBlockTime: blockTime })
    .onConflictDoUpdate((row) => ({
      batchCount: row.batchCount + 1,
      paymentCount: row.paymentCount + more.paymentCount,
      total: row.total + more.total,
      gasUsed: row.gasUsed + more.gasUsed,
      gasCost: row.gasCost + more.gasCost,
      // A batch that is read late may be older than the keeper's newest recorded batch.
      lastBlockTime: row.lastBlockTime > blockTime ? row.lastBlockTime : blockTime,
    }))
}

/** Records a log that couldn't be read as an index gap, so that it doesn't stop the index. */
export async function setAside(
  db: Db,
  { chainId, txHash, blockNumber, blockHash, blockTime }: Place,
  item: Unreadable | { logIndex: number; reason: 'receipt_unavailable'; detail: string; sequence?: number },
): Promise<void> {
  await db
    .insert(indexGap)
    .values({ chainId, txHash, ...item, blockNumber, blockHash, blockTime })
    .onConflictDoNothing()
  if (item.reason === 'receipt_unavailable')
    await db.insert(missingReceipt).values({ chainId }).onConflictDoNothing()
}
