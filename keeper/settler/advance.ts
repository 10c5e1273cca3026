import { findMined, type Mined, readNonce } from '@tollkeeper/chain/receipts'
import { SignerError } from '@tollkeeper/chain/signTransaction'
import { ChainUnavailable } from '@tollkeeper/runtime/dependencies'
import { type SettlerContext, Unfunded } from './context.ts'
import type { OpenBatch } from './journal.ts'
import { recordMined } from './mined.ts'
import { offer } from './offer.ts'
import { resendIfDue } from './send.ts'

/** How long a wallet without gas money, or without a signature, waits before it tries again. */
const pauseMs = 15_000
/** How long we must see a nonce used before we take its batch for lost. */
const lostAfterMs = 10_000

/** How a step left a batch. `sent`: a new transaction is out. `mined`: the wallet is free. */
export type Progress = 'sent' | 'mined' | 'waiting'

/** Takes a batch one step on from where its journal has it: to its first transaction, or until one is mined. */
export async function advanceBatch(context: SettlerContext, open: OpenBatch): Promise<Progress> {
  try {
    const next = open.offers.length > 0 ? await track(context, open) : 'offer'
    if (next !== 'offer') return next
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
 * Follows a batch with a stored transaction until one of its hashes is mined: sends it again, or gives up a nonce that another
 * program used. Concludes nothing while an RPC fails.
 *
 * @returns `mined`: the wallet is free. `offer`: the stored transaction is stuck or too cheap, so more is to be offered.
 * @throws {Unfunded} if the wallet can't pay for the offer.
 */
async function track(context: SettlerContext, open: OpenBatch): Promise<'mined' | 'waiting' | 'offer'> {
  const { served, settings, metrics, address, missingSince, now, log } = context
  const { batch, offers } = open
  const [highest] = offers
  if (!highest) throw new Error(`batch ${batch.batchId} is out without a transaction`)
  metrics.unknownSeconds.set(
    { network: served.network.name, wallet: address },
    Math.max(...offers.map((one) => one.ageMs)) / 1000,
  )

  const found = await findOnChain(context, offers)
  if (found?.mined) {
    await recordMined(context, open, found.mined)
    return 'mined'
  }
  if (found && found.nextNonce > highest.nonce) {
    // The nonce is used, but none of our hashes is mined: another program signs with this key.
    const since = missingSince.get(batch.batchId) ?? now().getTime()
    missingSince.set(batch.batchId, since)
    if (now().getTime() - since < lostAfterMs) return 'waiting'
    await open.close({ outcome: 'lost', failure: 'deferred' })
    log.error(
      { batch: batch.batchId, wallet: address },
      'the nonce was used by a transaction that is not ours',
    )
    missingSince.delete(batch.batchId)
    return 'waiting'
  }
  if (found) missingSince.delete(batch.batchId)
  // A reorg also dropped closed batches, which nobody follows any more: until theirs are mined again, ours can't be.
  const earlier =
    found && found.nextNonce < highest.nonce
      ? await context.journal.readOffers({ from: found.nextNonce, below: highest.nonce })
      : []
  // Even if the wallet can't pay for an earlier one, this one may be out: a node may have taken it without saying so.
  for (const before of earlier) await resendIfDue(context, before).catch(unfundedOnly)
  // While a node is unavailable as well: that the others didn't find it proves nothing, and to send it again does no harm.
  const resent = await resendIfDue(context, highest)
  const isStuck = highest.ageMs >= settings.replaceAfterMs
  // The base fee has risen above the offer, and may never fall below it again.
  const isTooCheap = resent?.status === 'rejected' && resent.code === 'underpriced'
  const isNext = found?.nextNonce === highest.nonce
  return (isStuck || isTooCheap) && isNext ? 'offer' : 'waiting'
}

/** Asks the chain which of a batch's transactions is mined, and for the wallet's next nonce; null while a node is unavailable. */
async function findOnChain(
  { served, address }: SettlerContext,
  offers: OpenBatch['offers'],
): Promise<{ mined: Mined | null; nextNonce: number } | null> {
  const hashes = offers.map(({ hash }) => hash)
  const [mined, nextNonce] = await Promise.all([
    findMined(served.clients, hashes).catch(unavailableOnly),
    readNonce(served.clients, address).catch(unavailableOnly),
  ])
  return mined === 'unavailable' || nextNonce === 'unavailable' ? null : { mined, nextNonce }
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
 * already is followed and sent again; only a higher offer for it has to wait.
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
