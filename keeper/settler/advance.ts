import { findMined, readNonce } from '@tollkeeper/chain/receipts'
import { SignerError } from '@tollkeeper/chain/signTransaction'
import { ChainUnavailable } from '@tollkeeper/runtime/dependencies'
import { type SettlementWallet, type SettlerContext, Unfunded } from './context.ts'
import type { OpenBatch } from './journal.ts'
import { recordMined } from './mined.ts'
import { prepareBatch } from './prepare.ts'
import { resendIfDue, sendOffer } from './send.ts'

/** How long a wallet without gas money, or without a signature, waits before it tries again. */
const pauseMs = 15_000
/** How long we must see a nonce used before we take its batch for lost. */
const lostAfterMs = 10_000

/** How a step left a batch. `sent`: its first transaction is out. `mined`: the wallet is free. */
export type Progress = 'sent' | 'mined' | 'waiting'

/** Takes a batch one step on from where its journal has it: to its first transaction, or until one is mined. */
export async function advanceBatch(context: SettlerContext, open: OpenBatch): Promise<Progress> {
  try {
    if (open.offers.length > 0) return (await track(context, open)) ? 'mined' : 'waiting'
    if (!context.wallet) return 'waiting'
    return (await offer(context, context.wallet, open)) ? 'sent' : 'waiting'
  } catch (error) {
    if (error instanceof Unfunded) await releaseUnfunded(context, open, error)
    else if (error instanceof SignerError) await releaseUnsigned(context, open, error)
    else throw error
    return 'waiting'
  }
}

/**
 * Asks the chain which part of a batch can be settled, signs that, stores the transaction, and only then sends it.
 *
 * From a claimed batch, which isn't signed yet, it drops what would fail. For a nonce that doesn't get mined it offers
 * more: the batch without what was settled meanwhile, or, if nothing is left, an empty transaction to itself. Only a real jam gets
 * this far, since the stored bytes were sent again before. If the fee cap leaves no room, it offers nothing new.
 *
 * @returns whether another transaction is out.
 * @throws {Unfunded} if the wallet can't pay for it
 */
async function offer(context: SettlerContext, wallet: SettlementWallet, open: OpenBatch): Promise<boolean> {
  const { served, log, checkpoint, metrics } = context
  const isFirst = open.offers.length === 0
  const began = performance.now()
  if (isFirst) await checkpoint('before-simulation')
  const prepared = await prepareBatch(context, open)
  if (!prepared) return false
  if (isFirst) await checkpoint('after-simulation')
  const { plan, drops, refused } = prepared
  if (isFirst && !plan) {
    await open.close({ outcome: 'nothing_left', failure: refused ?? 'authorization_used', drops })
    log.info({ batch: open.batch.batchId, dropped: drops.length }, 'nothing of the batch can be settled now')
    return false
  }
  const kind = isFirst ? 'settle' : plan ? 'replacement' : 'cancellation'
  // A payment that a replacement leaves out stays in the batch: the earlier transaction may still be mined with it.
  await sendOffer(context, wallet, open, prepared, kind, isFirst ? drops : [])
  if (!isFirst) await checkpoint('after-replacement-broadcast')
  else
    metrics.triggerToBroadcast.observe(
      { network: served.network.name },
      (open.ageMs + performance.now() - began) / 1000,
    )
  return true
}

/**
 * Follows a batch with a stored transaction until one of its hashes is mined: sends it again, offers more, or takes
 * its nonce back. Concludes nothing while an RPC fails.
 *
 * @returns whether it was found mined, so that the wallet is free.
 * @throws {Unfunded} if the wallet can't pay for the offer.
 */
async function track(context: SettlerContext, open: OpenBatch): Promise<boolean> {
  const { served, settings, metrics, address, wallet, missingSince, now, log } = context
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
    // That the nodes that answered didn't find it proves nothing, and to send it again does no harm.
    await resendIfDue(context, dearest)
    return false
  }
  if (mined) {
    await recordMined(context, open, mined)
    return true
  }
  if (nextNonce > dearest.nonce) {
    // The nonce is used, but none of our hashes is mined: another program signs with this key.
    const since = missingSince.get(batch.batchId) ?? now().getTime()
    missingSince.set(batch.batchId, since)
    if (now().getTime() - since < lostAfterMs) return false
    await open.close({ outcome: 'lost', failure: 'deferred' })
    log.error(
      { batch: batch.batchId, wallet: address },
      'the nonce was used by a transaction that is not ours',
    )
    missingSince.delete(batch.batchId)
    return false
  }
  missingSince.delete(batch.batchId)
  if (nextNonce < dearest.nonce) {
    // A reorg also dropped closed batches, which nobody follows any more: until theirs are mined again, ours can't be.
    for (const before of await context.journal.readOffers({ from: nextNonce, below: dearest.nonce })) {
      // Even if the wallet can't pay for an earlier one, this one may be out: a node may have taken it without saying so.
      await resendIfDue(context, before).catch(unfundedOnly)
    }
  }

  const resent = await resendIfDue(context, dearest)
  const isStuck = dearest.ageMs >= settings.replaceAfterMs
  // The base fee has risen above the offer, and may never fall below it again.
  const isTooCheap = resent?.status === 'rejected' && resent.code === 'underpriced'
  if ((isStuck || isTooCheap) && nextNonce === dearest.nonce && wallet) await offer(context, wallet, open)
  return false
}

function unfundedOnly(error: unknown): void {
  if (!(error instanceof Unfunded)) throw error
}

function unavailableOnly(error: unknown): 'unavailable' {
  if (error instanceof ChainUnavailable) return 'unavailable'
  throw error
}

/**
 * Pauses a wallet that can't pay for its batch, and releases the batch to a wallet that can. No payment loses an
 * attempt. What a node has taken stays: it may be mined as soon as there is money.
 */
async function releaseUnfunded(
  { journal, log, address }: SettlerContext,
  open: OpenBatch,
  { balance, needed }: Unfunded,
): Promise<void> {
  const reason = 'insufficient_gas_funds'
  await journal.pause(pauseMs, reason)
  const isReleased = await open.close({ outcome: 'released', failure: reason, unlessTaken: true })
  const details = balance !== undefined && { balance: `${balance}`, needed: `${needed}` }
  log.error(
    { wallet: address, batch: open.batch.batchId, isReleased, ...details },
    'the wallet is out of gas money: paused',
  )
}

/**
 * Pauses a wallet whose signer gave nothing that may be sent, and releases its batch to a wallet that can sign. What is signed
 * already is followed and sent again; only a dearer offer for it has to wait.
 */
async function releaseUnsigned(
  { served, journal, metrics, log, address }: SettlerContext,
  open: OpenBatch,
  error: SignerError,
): Promise<void> {
  const { code } = error
  metrics.signerFailures.inc({ network: served.network.name, wallet: address, code })
  log.error(
    { err: error, code, wallet: address, batch: open.batch.batchId },
    'the signer signed nothing: paused',
  )
  await journal.pause(pauseMs, code)
  if (open.offers.length === 0) await open.close({ outcome: 'released', failure: 'deferred' })
  // Its loop tries less and less often.
  else throw error
}
