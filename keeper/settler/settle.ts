import { bumpFees, type Fees } from '#chain/fees'
import { readWalletState, type WalletState } from '#chain/walletState'
import type { TransferReport } from '#ledger/transferReports'
import type { SettlementWallet } from '../loops/context.ts'
import { addSweeps } from './addSweeps.ts'
import type { SettlerContext } from './context.ts'
import type { OpenBatch } from './journal.ts'
import { reportDrops } from './plan.ts'
import { payersOf, prepareItems, signerOf, Unfunded } from './prepare.ts'
import { isUnfunded, resendIfDue, sendStored } from './send.ts'
import { signPlan } from './sign.ts'

/** How long a wallet without gas money waits before it looks at its balance again. */
const emptyWalletPauseMs = 15_000

/**
 * Takes a claimed batch, of which nothing is signed yet, to its first broadcast: asks the chain, drops what would fail,
 * signs, stores the transaction, and only then sends it.
 *
 * @returns whether a transaction is out.
 */
export async function settleClaimed(
  context: SettlerContext,
  wallet: SettlementWallet,
  open: OpenBatch,
): Promise<boolean> {
  const { served, log, checkpoint, address } = context
  const { batch } = open
  const began = performance.now()
  await checkpoint('before-simulation')
  const [items, notBefore] = await Promise.all([open.readItems(), context.readNotBefore()])
  const [state] = await Promise.all([
    readWalletState(served, address, context.settings, notBefore),
    // Asked for now, the answers travel with the others; prepareItems finds them in the cache.
    context.payersWithCode(payersOf(items)),
  ])
  reportBalance(context, state)
  const fees = await feesFor(context, state)
  if (!fees) return false
  const signer = signerOf(address, fees, state)
  const prepared = await prepareItems(context, batch, items, signer, state.at).catch(unfundedOnly)
  await checkpoint('after-simulation')
  if (prepared instanceof Unfunded) {
    await releaseUnfunded(context, open, prepared)
    return false
  }
  const { plan, drops } = prepared
  // Through POST /submit all that was asked for is settled, or nothing.
  const report = batch.isSubmission ? reportDrops(items, drops) : []
  if (!plan || report.length > 0) {
    await open.close({ outcome: 'nothing_left', failure: failureOf(report), report, drops })
    log.info({ batch: batch.batchId, dropped: drops.length }, 'nothing of the batch can be settled now')
    return false
  }
  const refusal = await context.ceiling.check(batch, plan, state.fees)
  if (refusal) {
    await open.close({ outcome: 'released', failure: 'deferred', drops })
    log.warn({ batch: batch.batchId, ...refusal }, 'the batch waits: settling costs too much at the moment')
    return false
  }

  const swept = await addSweeps(context, open, plan, signer, state.fees)
  const transaction = await signPlan(served, wallet, swept, state.nonce, fees, 'settle')
  await checkpoint('before-write-ahead')
  await open.save(transaction, drops)
  await checkpoint('after-write-ahead')
  const { hash } = transaction
  log.info(
    {
      batch: batch.batchId,
      trigger: batch.trigger,
      wallet: address,
      hash,
      payments: plan.entries.length,
      sweeps: swept.shape.sweeps,
    },
    'batch signed',
  )
  const sent = await sendStored(context, open, transaction)
  context.metrics.triggerToBroadcast.observe(
    { network: served.network.name },
    (open.ageMs + performance.now() - began) / 1000,
  )
  if (!isUnfunded(sent)) return true
  await releaseUnfunded(context, open, null)
  return false
}

/** @returns null where a nonce of a batch that is over takes no more than was offered: that is sent again instead. */
async function feesFor(context: SettlerContext, { nonce, fees }: WalletState): Promise<Fees | null> {
  // A reorg gave its nonce back, or no node had taken it. What is offered for a nonce only rises.
  const [before] = await context.journal.readOffers({ from: nonce, below: nonce + 1 })
  if (!before) return fees
  const bumped = bumpFees(before.offer, fees, context.settings.maxFeePerGas)
  if (!bumped) await resendIfDue(context, before, before.offer)
  return bumped
}

export function unfundedOnly(error: unknown): Unfunded {
  if (error instanceof Unfunded) return error
  throw error
}

export function reportBalance({ metrics, served, address }: SettlerContext, { balance }: WalletState): void {
  metrics.walletBalance.set(
    { network: served.network.name, wallet: address },
    Number(balance / 10n ** 9n) / 1e9,
  )
}

/**
 * Pauses a wallet that can't pay for its batch, and releases the batch, for a wallet that can. No payment's attempt is
 * spent. What a node has taken already stays: it may be mined as soon as there is money.
 *
 * @returns whether the batch was released.
 */
export async function releaseUnfunded(
  { journal, log, address }: SettlerContext,
  open: OpenBatch,
  missing: Unfunded | null,
): Promise<boolean> {
  const reason = 'insufficient_gas_funds'
  await journal.pause(emptyWalletPauseMs, reason)
  const isReleased = await open.close({ outcome: 'released', failure: reason, unlessTaken: true })
  const details = missing && { balance: `${missing.balance}`, needed: `${missing.needed}` }
  log.error(
    { wallet: address, batch: open.batch.batchId, isReleased, ...details },
    'the wallet is out of gas money: paused',
  )
  return isReleased
}

/** The transfers' own fault comes before what may be over in a moment. */
function failureOf(report: readonly TransferReport[]): string {
  const codes = report.flatMap((one) => ('code' in one ? one.code : []))
  return codes.find((code) => code !== 'deferred') ?? codes[0] ?? 'authorization_used'
}
