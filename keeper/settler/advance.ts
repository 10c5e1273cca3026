import { findMined, type Mined, readNonce } from '@tollkeeper/chain/receipts'
import { SignerError } from '@tollkeeper/chain/signTransaction'
import { ChainUnavailable } from '@tollkeeper/runtime/dependencies'
import { type SettlerContext, Unfunded } from './context.ts'
import type { OpenBatch } from './journal.ts'
import { recordMined } from './mined.ts'
import { offer } from './offer.ts'
import { resendIfDue } from './send.ts'

/** Time in ms for which a wallet without gas money, or without a signature, is paused. */
const pauseMs = 15_000
/** Time in ms for which a nonce must appear as used by another program before its batch is closed as lost. */
const lostAfterMs = 10_000

/**
 * Maximum number of transactions that a wallet has in flight. By default, geth and reth keep 16 transactions of one sender, and refuse or drop
 * further transactions.
 */
export const mostInFlight = 16

/** The result of a step of a batch. `sent`: a new transaction was sent. `mined`: one of its transactions is in a block. */
export type Progress = 'sent' | 'mined' | 'waiting'

/** The state of a wallet's batches after each was followed. */
export type Followed = {
  progress: Progress
  /** Whether a nonce that is lower than a nonce in flight belongs to no open batch. If so, the next batch must use it. */
  hasGap: boolean
}

/**
 * Follows all batches of a wallet that have a stored transaction, in the order of their nonces: records those that are mined, sends the
 * others again, raises the fee of the next nonce if it is stuck, and closes a batch whose nonce another program has used. Finalizes
 * nothing while an RPC fails. If a batch fails, the others are followed anyway, and the error is thrown at the end.
 */
export async function followBatches(
  context: SettlerContext,
  batches: readonly OpenBatch[],
): Promise<Followed> {
  const signed = batches.filter(isSigned)
  noteOldest(context, signed)
  const chain = await findOnChain(context, signed)
  const hasGap = chain !== null && (await resendBetween(context, signed, chain.nextNonce))
  const errors: unknown[] = []
  let progress: Progress = 'waiting'
  for (const [index, open] of signed.entries()) {
    try {
      const own = await orRelease(context, open, signed.slice(0, index), () => follow(context, open, chain))
      if (own === 'mined' || progress === 'waiting') progress = own
    } catch (error) {
      errors.push(error)
    }
  }
  if (errors.length > 0) throw errors[0]
  return { progress, hasGap }
}

/**
 * Sends a batch's first transaction, with the lowest nonce that none of the wallet's batches has.
 *
 * @param inFlight the wallet's other batches, for which gas money is set aside
 */
export async function beginBatch(
  context: SettlerContext,
  open: OpenBatch,
  inFlight: readonly OpenBatch[],
): Promise<Progress> {
  const { wallet, fundedInFlight, address } = context
  if (wallet === null || !isFunded(context, inFlight.length)) return 'waiting'
  fundedInFlight.delete(address)
  const setAside = inFlight.reduce((sum, { offers }) => sum + worstCost(offers), 0n)
  return orRelease(context, open, inFlight, async () =>
    (await offer(context, wallet, open, setAside)) ? 'sent' : 'waiting',
  )
}

/**
 * Whether a wallet may start another batch. It may not while a transaction is stuck or no node has accepted it, because a new transaction
 * behind it would have to wait as well. A transaction that fills a gap comes before those in flight, so it needn't wait for them.
 */
export function mayBegin(
  context: Pick<SettlerContext, 'fundedInFlight' | 'address'> & {
    settings: Pick<SettlerContext['settings'], 'replaceAfterMs'>
  },
  open: readonly OpenBatch[],
  hasGap: boolean,
): boolean {
  if (open.length >= mostInFlight || !open.every(isSigned) || !isFunded(context, open.length)) return false
  const { replaceAfterMs } = context.settings
  return hasGap || open.every(({ offers: [highest] }) => highest?.isTaken && highest.ageMs < replaceAfterMs)
}

/**
 * Whether the wallet's gas money may cover one more transaction. Returns false if at least as many transactions are in flight as there were when the
 * money last didn't cover one more.
 */
function isFunded(
  { fundedInFlight, address }: Pick<SettlerContext, 'fundedInFlight' | 'address'>,
  inFlight: number,
): boolean {
  return inFlight < (fundedInFlight.get(address) ?? Number.POSITIVE_INFINITY)
}

function isSigned({ offers }: OpenBatch): boolean {
  return offers.length > 0
}

/** Returns the maximum cost in wei of a batch's transaction. Any of the batch's offers may be mined. */
function worstCost(offers: OpenBatch['offers']): bigint {
  const costs = offers.map(({ gas, maxFeePerGas }) => gas * maxFeePerGas)
  return costs.reduce((most, cost) => (cost > most ? cost : most), 0n)
}

function noteOldest({ served, metrics, address }: SettlerContext, signed: readonly OpenBatch[]): void {
  const ages = signed.flatMap(({ offers }) => offers.map(({ ageMs }) => ageMs))
  metrics.unknownSeconds.set({ network: served.network.name, wallet: address }, Math.max(0, ...ages) / 1000)
}

/**
 * Runs a step of a batch. If the wallet can't pay for it, or its signer doesn't sign it, the wallet is paused, and the batch is released to another
 * wallet. A wallet with other transactions in flight isn't paused for lack of money, because it may have enough money but keep it for those
 * transactions.
 */
async function orRelease(
  context: SettlerContext,
  open: OpenBatch,
  inFlight: readonly OpenBatch[],
  work: () => Promise<Progress>,
): Promise<Progress> {
  try {
    return await work()
  } catch (error) {
    if (error instanceof SignerError) await releaseUnsigned(context, open, error)
    else if (!(error instanceof Unfunded)) throw error
    else if (inFlight.length === 0) await releaseUnfunded(context, open, error)
    else await holdBack(context, open, inFlight.length)
    return 'waiting'
  }
}

/**
 * Follows a batch with a stored transaction.
 *
 * @param chain the state of the wallet's transactions on chain; null while it isn't known
 * @throws {Unfunded} if the wallet can't pay for the offer
 */
async function follow(context: SettlerContext, open: OpenBatch, chain: OnChain | null): Promise<Progress> {
  const { settings, address, wallet, missingSince, now, log } = context
  const { batch, offers } = open
  const [highest] = offers
  if (!highest) throw new Error(`batch ${batch.batchId} is in flight without a transaction`)
  const found = chain?.mined.get(batch.batchId)
  if (found) {
    await recordMined(context, open, found)
    return 'mined'
  }
  // `found` is null if all nodes answered and none has a receipt.
  if (chain && found === null && chain.nextNonce > highest.nonce) {
    // The nonce is used, but none of our transactions is mined: another program signs with this key.
    const since = missingSince.get(batch.batchId) ?? now().getTime()
    missingSince.set(batch.batchId, since)
    if (now().getTime() - since < lostAfterMs) return 'waiting'
    await open.close({ result: 'lost', failure: 'deferred' })
    log.error(
      { batch: batch.batchId, wallet: address },
      'the nonce was used by a transaction that is not ours',
    )
    missingSince.delete(batch.batchId)
    return 'waiting'
  }
  if (chain && (found === null || chain.nextNonce <= highest.nonce)) missingSince.delete(batch.batchId)
  // Resend even while a node is unavailable: the other nodes may lack the transaction, and sending it again does no harm.
  const resent = await resendIfDue(context, highest)
  const isStuck = highest.ageMs >= settings.replaceAfterMs
  // The base fee has risen above the offer, and may never fall below it again. So replace the offer, even if it isn't stuck yet.
  const isTooCheap = resent?.status === 'rejected' && resent.code === 'underpriced'
  // Only the next nonce is replaced: a higher fee can't help the transactions behind it.
  const isNext = found === null && chain?.nextNonce === highest.nonce
  if (!(isStuck || isTooCheap) || !isNext || wallet === null) return 'waiting'
  return (await offer(context, wallet, open)) ? 'sent' : 'waiting'
}

/** `mined` has each batch's mined transaction: null if no node has a receipt, undefined if it isn't known. */
type OnChain = { nextNonce: number; mined: ReadonlyMap<string, Mined | null | undefined> }

/**
 * Reads the wallet's next nonce and the mined transactions of its batches. Returns null while the next nonce isn't known. A batch whose
 * nonce isn't used can't be mined, so its receipts are only read before its transaction is sent again or replaced.
 */
async function findOnChain(
  { served, address, settings }: SettlerContext,
  signed: readonly OpenBatch[],
): Promise<OnChain | null> {
  if (signed.length === 0) return null
  const lookUp = async ({ batch, offers }: OpenBatch) => {
    const hashes = offers.map(({ hash }) => hash)
    const found = await findMined(served.clients, hashes).catch(unavailableOnly)
    return [batch.batchId, found === 'unavailable' ? undefined : found] as const
  }
  const nextNonce = await readNonce(served.clients, address).catch(unavailableOnly)
  if (nextNonce === 'unavailable') return null
  const found = signed.map(async (open, index) => {
    const [highest] = open.offers
    if (highest && highest.nonce < nextNonce) return lookUp(open)
    // The chain uses nonces in order, so no later one can be mined yet.
    if (index > 0) return [open.batch.batchId, null] as const
    return highest && isInTime(highest, settings) ? ([open.batch.batchId, undefined] as const) : lookUp(open)
  })
  return { nextNonce, mined: new Map(await Promise.all(found)) }
}

/** Whether it is too early to send an offer again or to replace it. */
function isInTime(
  { triedAgoMs, ageMs }: OpenBatch['offers'][number],
  {
    rebroadcastAfterMs,
    replaceAfterMs,
  }: Pick<SettlerContext['settings'], 'rebroadcastAfterMs' | 'replaceAfterMs'>,
): boolean {
  return triedAgoMs !== null && triedAgoMs < rebroadcastAfterMs && ageMs < replaceAfterMs
}

/**
 * Sends stored transactions of closed batches again if their nonces come before those in flight. A reorg has dropped these transactions, and no open
 * batch follows them. The nonces in flight can't be used before these lower ones are.
 *
 * @returns whether there are such nonces
 */
async function resendBetween(
  context: SettlerContext,
  signed: readonly OpenBatch[],
  nextNonce: number,
): Promise<boolean> {
  const own = new Set(signed.flatMap(({ offers: [highest] }) => highest?.nonce ?? []))
  const below = Math.max(nextNonce, ...own)
  const inFlight = [...own].filter((nonce) => nonce >= nextNonce && nonce < below).length
  if (below - nextNonce === inFlight) return false
  // If the wallet can't pay for one transaction, the next ones are sent anyway, because a node may already have the transaction that the wallet can't
  // pay for, even if no node has confirmed that.
  for (const before of await context.journal.readOffers({ from: nextNonce, below }))
    if (!own.has(before.nonce)) await resendIfDue(context, before).catch(unfundedOnly)
  return true
}

function unfundedOnly(error: unknown): void {
  if (!(error instanceof Unfunded)) throw error
}

function unavailableOnly(error: unknown): 'unavailable' {
  if (error instanceof ChainUnavailable) return 'unavailable'
  throw error
}

/**
 * Prevents a wallet from starting another batch until one of its transactions in flight is mined, and releases a batch that isn't signed.
 * A submission waits instead, because it would fail if it were released.
 */
async function holdBack(
  { fundedInFlight, address, log }: SettlerContext,
  { batch, offers, close }: OpenBatch,
  inFlight: number,
): Promise<void> {
  fundedInFlight.set(address, inFlight)
  if (offers.length === 0 && batch.lane !== 'submission')
    await close({ result: 'released', failure: 'deferred', unlessTaken: true })
  const details = { wallet: address, batch: batch.batchId, inFlight }
  log.warn(details, "waiting: the wallet's gas money is set aside for its transactions in flight")
}

/**
 * Pauses a wallet that can't pay for its batch, and releases the batch to a wallet that can. Payments keep their attempts. A batch whose
 * transaction a node has accepted isn't released, because it may be mined once the wallet has money.
 */
async function releaseUnfunded(
  { journal, log, address }: SettlerContext,
  open: OpenBatch,
  { balance, needed }: Unfunded,
): Promise<void> {
  const reason = 'insufficient_gas_funds'
  await journal.pause(pauseMs, reason)
  const isReleased = await open.close({ result: 'released', failure: reason, unlessTaken: true })
  const details = balance !== undefined && { balance: `${balance}`, needed: `${needed}` }
  log.error(
    { wallet: address, batch: open.batch.batchId, isReleased, ...details },
    'the wallet is out of gas money: wallet paused',
  )
}

/**
 * Pauses a wallet whose signer returned no usable signature, and releases its batch to a wallet that can sign. A batch that was signed
 * before is followed and sent again; only a higher offer for it has to wait.
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
    'the signer returned no usable signature: wallet paused',
  )
  await journal.pause(pauseMs, code)
  if (open.offers.length === 0) await open.close({ result: 'released', failure: 'deferred' })
  // Thrown, so that the wallet's loop retries with growing intervals.
  else throw error
}
