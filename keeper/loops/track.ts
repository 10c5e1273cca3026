import { ChainUnavailable } from '#chain/everywhere'
import { estimateFees } from '#chain/feeEstimate'
import { bumpFees } from '#chain/fees'
import { findMined, type Mined, readNonce } from '#chain/receipts'
import { type BatchRow, lockBatch, setBatchState } from '#ledger/batches'
import { raiseActedBlock } from '#ledger/indexedHead'
import { type Lease, requireLease } from '#ledger/leases'
import {
  insertTransaction,
  markMined,
  readDearestBetween,
  readTransactions,
  type TransactionRow,
} from '#ledger/transactions'
import type { Context, SettlementWallet } from './context.ts'
import { endBatch } from './endBatch.ts'
import { findMissingFunds, isUnfunded, releaseUnfunded } from './funds.ts'
import { prepareBatch } from './prepare.ts'
import { resendIfDue, sendStored } from './send.ts'
import { signPlan } from './settle.ts'

/** A nonce that is gone must be seen gone this often, this long, before its batch is given up for lost. */
const lostAfterMs = 10_000

/**
 * Follows a batch whose transaction is stored until one of its hashes is mined: sends it again, offers more, or takes
 * its nonce back. Concludes nothing while an RPC fails.
 *
 * @param wallet null: its key is not here. The stored bytes can be sent by anybody; only a new offer needs the key.
 * @returns whether it was found mined: the wallet is free.
 */
export async function trackBatch(
  context: Context,
  lease: Lease,
  wallet: SettlementWallet | null,
  batch: BatchRow,
): Promise<boolean> {
  const { served, settings, metrics } = context
  const transactions = await readTransactions(context.sql, batch.id)
  const [dearest] = transactions
  if (!dearest) throw new Error(`batch ${batch.batchId} is ${batch.state} without a transaction`)
  metrics.unknownSeconds.set(
    { network: served.network.name, wallet: lease.address },
    Math.max(...transactions.map((one) => one.ageMs)) / 1000,
  )

  let mined: Mined | null
  try {
    mined = await findMined(
      served.clients,
      transactions.map((one) => one.hash),
    )
  } catch (error) {
    if (!(error instanceof ChainUnavailable)) throw error
    // Not found by those that answered: that says nothing. To send it again can't hurt.
    await resendIfDue(context, lease, dearest)
    return false
  }
  if (mined) {
    await recordMined(context, lease, batch, mined)
    return true
  }

  const nextNonce = await readNonce(served.clients, lease.address)
  if (nextNonce > dearest.nonce) {
    await giveUpIfLost(context, lease, batch)
    return false
  }
  context.memory.missingSince.delete(batch.batchId)
  if (nextNonce < dearest.nonce) {
    // A reorg dropped closed batches as well, which nobody follows any more: until theirs are mined again, ours can't be.
    const gap = { from: nextNonce, below: dearest.nonce }
    for (const before of await readDearestBetween(context.sql, lease, gap)) {
      await resendIfDue(context, lease, before)
    }
  }

  const isStuck = dearest.ageMs >= settings.replaceAfterMs
  const canReplace = wallet !== null && nextNonce === dearest.nonce
  if (isStuck && canReplace && (await replace(context, lease, wallet, batch, dearest))) return false
  const resent = await resendIfDue(context, lease, dearest)
  if (isUnfunded(resent)) await releaseUnfunded(context, lease, batch, null)
  // The base fee has risen over what was offered: waiting for it to fall again may take for ever.
  const isTooCheap = resent?.status === 'rejected' && resent.code === 'underpriced'
  if (isTooCheap && canReplace) await replace(context, lease, wallet, batch, dearest)
  return false
}

async function recordMined(context: Context, lease: Lease, batch: BatchRow, mined: Mined): Promise<void> {
  const { sql, served, log, metrics, checkpoint } = context
  const { blockNumber, blockHash, status } = mined.receipt
  await checkpoint('before-mined-recorded')
  await sql.begin(async (tx) => {
    await requireLease(tx, lease)
    if (!(await lockBatch(tx, batch.id, batch.state))) return
    await markMined(tx, mined.hash, { blockNumber, blockHash, succeeded: status === 'success' })
    await setBatchState(tx, batch.id, 'mined')
    await raiseActedBlock(tx, served.network.chainId, blockNumber)
  })
  context.memory.missingSince.delete(batch.batchId)
  metrics.unknownSeconds.set({ network: served.network.name, wallet: lease.address }, 0)
  log.info({ batch: batch.batchId, hash: mined.hash, block: `${blockNumber}`, status }, 'batch mined')
  await checkpoint('after-mined-recorded')
}

/** The nonce is used and none of our hashes is anywhere: another program signs with this key. */
async function giveUpIfLost(context: Context, lease: Lease, batch: BatchRow): Promise<void> {
  const { now, log } = context
  const since = context.memory.missingSince.get(batch.batchId) ?? now().getTime()
  context.memory.missingSince.set(batch.batchId, since)
  if (now().getTime() - since < lostAfterMs) return
  await endBatch(context, batch, { from: batch.state, lease, outcome: 'lost', failure: 'put_off' })
  context.memory.missingSince.delete(batch.batchId)
  log.error(
    { batch: batch.batchId, wallet: lease.address },
    'the nonce was used by a transaction that is not ours',
  )
}

/**
 * Offers more for a nonce that doesn't get mined: the batch without what was settled meanwhile, or, if nothing is left
 * of it, an empty transaction to oneself. The stored bytes were sent again before: only a real jam gets here.
 *
 * @returns false if the fee cap, or the wallet's money, leaves no room, and the stored bytes are all that there is.
 */
async function replace(
  context: Context,
  lease: Lease,
  wallet: SettlementWallet,
  batch: BatchRow,
  stored: TransactionRow,
): Promise<boolean> {
  const { sql, served, settings, log, metrics, checkpoint } = context
  const current = await estimateFees(served.client, settings)
  const fees = bumpFees(stored, current, settings.maxFeePerGas)
  if (!fees) return false

  // What is left out here stays in the batch: the transaction before this one may still be mined, with all of it.
  const { plan } = await prepareBatch(context, batch, wallet.address)
  const kind = plan ? 'replacement' : 'cancellation'
  const missing = await findMissingFunds(context, wallet.address, plan?.gas ?? plainTransferGas, fees)
  if (missing) return releaseUnfunded(context, lease, batch, missing)
  const transaction = plan
    ? await signPlan(context, wallet, batch, plan, stored.nonce, fees, kind)
    : await signCancellation(context, wallet, batch, stored.nonce, fees)
  await checkpoint('before-replacement-write-ahead')
  await sql.begin(async (tx) => {
    await requireLease(tx, lease)
    if (!(await lockBatch(tx, batch.id, batch.state))) throw new Error(`batch ${batch.batchId} moved on`)
    await insertTransaction(tx, transaction)
  })
  await checkpoint('after-replacement-write-ahead')
  metrics.replacements.inc({ network: served.network.name, kind })
  log.warn(
    { batch: batch.batchId, replaced: stored.hash, hash: transaction.hash, kind },
    'offered more for the nonce',
  )
  await sendStored(context, lease, transaction)
  await checkpoint('after-replacement-broadcast')
  return true
}

const plainTransferGas = 21_000n

async function signCancellation(
  context: Context,
  wallet: SettlementWallet,
  batch: BatchRow,
  nonce: number,
  fees: { maxFeePerGas: bigint; maxPriorityFeePerGas: bigint },
) {
  const empty = { entries: [], shape: { pairs: 0, singles: 0, payees: 0, hasCode: false } }
  const cancellation = { ...empty, calldata: '0x' as const, gas: plainTransferGas }
  return signPlan(context, wallet, batch, cancellation, nonce, fees, 'cancellation')
}
