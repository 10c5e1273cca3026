import type { SettlerContext } from './context.ts'
import type { OpenBatch } from './journal.ts'
import { settleClaimed } from './settle.ts'
import { trackBatch } from './track.ts'
import { Unfunded } from './unfunded.ts'

/** How long a wallet without gas money waits before it looks at its balance again. */
const emptyWalletPauseMs = 15_000

/** What a step made of a batch. `sent`: its first transaction is out. `mined`: the wallet is free. */
export type Progress = 'sent' | 'mined' | 'waiting'

/** Takes a batch one step on, from whatever its journal says of it: to its first transaction, or until one is mined. */
export async function advanceBatch(context: SettlerContext, open: OpenBatch): Promise<Progress> {
  try {
    if (open.offers.length > 0) return (await trackBatch(context, open)) ? 'mined' : 'waiting'
    if (!context.wallet) return 'waiting'
    return (await settleClaimed(context, context.wallet, open)) ? 'sent' : 'waiting'
  } catch (error) {
    if (!(error instanceof Unfunded)) throw error
    await releaseUnfunded(context, open, error)
    return 'waiting'
  }
}

/**
 * Pauses a wallet that can't pay for its batch, and releases the batch, for a wallet that can. No payment's attempt is
 * spent. What a node has taken already stays: it may be mined as soon as there is money.
 */
async function releaseUnfunded(
  { journal, log, address }: SettlerContext,
  open: OpenBatch,
  { balance, needed }: Unfunded,
): Promise<void> {
  const reason = 'insufficient_gas_funds'
  await journal.pause(emptyWalletPauseMs, reason)
  const isReleased = await open.close({ outcome: 'released', failure: reason, unlessTaken: true })
  const details = balance !== undefined && { balance: `${balance}`, needed: `${needed}` }
  log.error(
    { wallet: address, batch: open.batch.batchId, isReleased, ...details },
    'the wallet is out of gas money: paused',
  )
}
