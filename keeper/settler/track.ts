import { bumpFees } from '#chain/fees'
import { findMined, type Mined, readNonce } from '#chain/receipts'
import { readWalletState } from '#chain/walletState'
import { ChainUnavailable } from '#process/dependencies'
import type { SettlementWallet } from '../loops/context.ts'
import { addSweeps } from './addSweeps.ts'
import type { SettlerContext } from './context.ts'
import type { Offer, OpenBatch } from './journal.ts'
import { payersOf, prepareItems, signerOf, Unfunded } from './prepare.ts'
import { isUnfunded, resendIfDue, sendStored } from './send.ts'
import { releaseUnfunded, reportBalance, unfundedOnly } from './settle.ts'
import { cancellationGas, signPlan } from './sign.ts'
import { judgeMined } from './verdict.ts'

/** A nonce that is gone must be seen gone this long before its batch is given up for lost. */
const lostAfterMs = 10_000
const outOfGasPauseMs = 60_000

/**
 * Follows a batch whose transaction is stored until one of its hashes is mined: sends it again, offers more, or takes
 * its nonce back. Concludes nothing while an RPC fails.
 *
 * @returns whether it was found mined: the wallet is free.
 */
export async function trackBatch(context: SettlerContext, open: OpenBatch): Promise<boolean> {
  const { served, settings, metrics, address, wallet } = context
  const { batch, offers } = open
  const [dearest] = offers
  if (!dearest) throw new Error(`batch ${batch.batchId} is out without a transaction`)
  metrics.unknownSeconds.set(
    { network: served.network.name, wallet: address },
    Math.max(...offers.map((one) => one.ageMs)) / 1000,
  )

  const hashes = offers.map((one) => one.hash)
  const [mined, nextNonce] = await Promise.all([
    findMined(served.clients, hashes).catch(unavailableOnly),
    readNonce(served.clients, address).catch(unavailableOnly),
  ])
  if (mined === 'unavailable' || nextNonce === 'unavailable') {
    // Not found by those that answered: that says nothing. To send it again can't hurt.
    await resendIfDue(context, open, dearest)
    return false
  }
  if (mined) {
    await recordMined(context, open, mined)
    return true
  }
  if (nextNonce > dearest.nonce) {
    await giveUpIfLost(context, open)
    return false
  }
  context.missingSince.delete(batch.batchId)
  if (nextNonce < dearest.nonce) {
    // A reorg dropped closed batches as well, which nobody follows any more: until theirs are mined again, ours can't be.
    for (const before of await context.journal.readOffers({ from: nextNonce, below: dearest.nonce })) {
      await resendIfDue(context, before, before.offer)
    }
  }

  const isStuck = dearest.ageMs >= settings.replaceAfterMs
  const canReplace = nextNonce === dearest.nonce
  if (isStuck && canReplace && wallet && (await replace(context, wallet, open, dearest))) return false
  const resent = await resendIfDue(context, open, dearest)
  if (isUnfunded(resent)) await releaseUnfunded(context, open, null)
  // The base fee has risen over what was offered: waiting for it to fall again may take for ever.
  const isTooCheap = resent?.status === 'rejected' && resent.code === 'underpriced'
  if (isTooCheap && canReplace && wallet) await replace(context, wallet, open, dearest)
  return false
}

function unavailableOnly(error: unknown): 'unavailable' {
  if (error instanceof ChainUnavailable) return 'unavailable'
  throw error
}

async function recordMined(context: SettlerContext, open: OpenBatch, mined: Mined): Promise<void> {
  const { served, log, metrics, checkpoint, address } = context
  const { blockNumber, status, gasUsed } = mined.receipt
  const verdict = await judgeMined(context, open, mined)
  const cost = await context.ceiling.costOf(mined.receipt)
  await checkpoint('before-mined-recorded')
  await open.markMined(mined, verdict, cost)
  context.missingSince.delete(open.batch.batchId)
  metrics.unknownSeconds.set({ network: served.network.name, wallet: address }, 0)
  log.info(
    { batch: open.batch.batchId, hash: mined.hash, block: `${blockNumber}`, status, gasUsed: `${gasUsed}` },
    'batch mined',
  )
  if (status !== 'success') {
    const counts = {
      failed: verdict.failed.length,
      spent: verdict.spent.length,
      untried: verdict.untried.length,
    }
    log.warn({ batch: open.batch.batchId, hash: mined.hash, ...counts }, 'the batch reverted on chain')
    if (verdict.ranOut) {
      await context.journal.pause(outOfGasPauseMs, 'out_of_gas')
      log.error({ wallet: address, batch: open.batch.batchId }, 'a batch ran out of gas: wallet paused')
    }
  }
  await checkpoint('after-mined-recorded')
}

/** The nonce is used and none of our hashes is anywhere: another program signs with this key. */
async function giveUpIfLost(
  { now, log, address, missingSince }: SettlerContext,
  open: OpenBatch,
): Promise<void> {
  const { batchId } = open.batch
  const since = missingSince.get(batchId) ?? now().getTime()
  missingSince.set(batchId, since)
  if (now().getTime() - since < lostAfterMs) return
  await open.close({ outcome: 'lost', failure: 'deferred' })
  missingSince.delete(batchId)
  log.error({ batch: batchId, wallet: address }, 'the nonce was used by a transaction that is not ours')
}

/**
 * Offers more for a nonce that doesn't get mined: the batch without what was settled meanwhile, or, if nothing is left
 * of it, an empty transaction to oneself. The stored bytes were sent again before: only a real jam gets here.
 *
 * @returns false if the fee cap, or the wallet's money, leaves no room, and the stored bytes are all that there is.
 */
async function replace(
  context: SettlerContext,
  wallet: SettlementWallet,
  open: OpenBatch,
  stored: Offer,
): Promise<boolean> {
  const { served, settings, log, metrics, checkpoint, address } = context
  const { batch } = open
  const [items, notBefore] = await Promise.all([open.readItems(), context.readNotBefore()])
  const [state] = await Promise.all([
    readWalletState(served, address, settings, notBefore),
    context.payersWithCode(payersOf(items)),
  ])
  reportBalance(context, state)
  const fees = bumpFees(stored, state.fees, settings.maxFeePerGas)
  if (!fees) return false

  // What is left out here stays in the batch: the transaction before this one may still be mined, with all of it.
  const signer = signerOf(address, fees, state)
  const prepared = await prepareItems(context, batch, items, signer, state.at).catch(unfundedOnly)
  if (prepared instanceof Unfunded) return releaseUnfunded(context, open, prepared)
  const plan = prepared.plan && (await addSweeps(context, open, prepared.plan, signer, state.fees))
  const neededToCancel = cancellationGas * fees.maxFeePerGas
  if (!plan && state.balance < neededToCancel)
    return releaseUnfunded(context, open, new Unfunded(state.balance, neededToCancel))
  const kind = plan ? 'replacement' : 'cancellation'
  const transaction = await signPlan(served, wallet, plan, stored.nonce, fees, kind)
  await checkpoint('before-replacement-write-ahead')
  await open.save(transaction, [])
  await checkpoint('after-replacement-write-ahead')
  metrics.replacements.inc({ network: served.network.name, kind })
  log.warn(
    { batch: batch.batchId, replaced: stored.hash, hash: transaction.hash, kind },
    'offered more for the nonce',
  )
  await sendStored(context, open, transaction)
  await checkpoint('after-replacement-broadcast')
  return true
}
