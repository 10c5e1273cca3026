import { zeroAddress } from 'viem'
import { type BatchRow, readWalletBatches } from '#ledger/batches'
import { acquireLease, type LeaseState, releaseLease, resumeWallet } from '#ledger/leases'
import { claimNext } from './claim.ts'
import type { Context, SettlementWallet } from './context.ts'
import { followHandover, handOver } from './handOver.ts'
import { readIndexState } from './indexState.ts'
import { settleClaimed } from './settle.ts'
import { trackBatch } from './track.ts'

/** `busy`: there may be more to do at once. `idle`: nothing to do before the next poll. */
export type StepResult = 'busy' | 'idle'

/** One wallet of one network at work. It keeps nothing in memory that matters: a step starts from what is stored. */
export function createWorker(
  context: Context,
  holder: string,
  worker: SettlementWallet | { facilitatorUrl: string },
) {
  const wallet = 'sign' in worker ? worker : null
  // A keeper that hands its batches over needs no wallet, but the same lease discipline.
  const address = wallet?.address ?? zeroAddress
  const { served, settings } = context
  const { chainId } = served.network
  let lease: LeaseState | null = null

  const acquire = () => acquireLease(context.sql, { chainId, address, holder, ttlMs: settings.leaseMs })

  async function step(): Promise<StepResult> {
    lease = await acquire()
    if (!lease) return 'idle'
    // A slow RPC may make a step take longer than the lease. A renewal that fails is noticed by the next fenced write.
    const renewal = setInterval(() => void acquire().catch(() => {}), settings.leaseMs / 3)
    try {
      return await stepWith(lease)
    } finally {
      clearInterval(renewal)
    }
  }

  async function stepWith(lease: LeaseState): Promise<StepResult> {
    const [open] = await readWalletBatches(context.sql, chainId, address)
    if (open?.state === 'handed_over') return followHandover(context, lease, open)
    if (open?.state === 'claimed') {
      await takeOn(lease, open)
      return 'idle'
    }
    if (open) {
      return (await trackBatch(context, lease, wallet, open)) ? 'busy' : 'idle'
    }

    if (await isPaused(lease)) return 'idle'
    if ((await readIndexState(context)).status !== 'current') return 'idle'
    const batch = await claimNext(context, lease)
    if (!batch) return 'idle'
    await takeOn(lease, batch)
    return 'busy'
  }

  /** Takes a claimed batch, by whichever process it was claimed, out of the house. */
  async function takeOn(lease: LeaseState, batch: BatchRow): Promise<void> {
    if (wallet) await settleClaimed(context, lease, wallet, batch)
    else await handOver(context, lease, batch)
  }

  async function isPaused({ pausedUntil, pausedReason }: LeaseState): Promise<boolean> {
    const labels = { network: served.network.name, wallet: address }
    const paused = pausedUntil !== null && pausedUntil > context.now()
    context.metrics.walletPaused.set(labels, paused ? 1 : 0)
    if (pausedUntil && !paused) {
      await resumeWallet(context.sql, { chainId, address })
      context.log.info({ wallet: address, reason: pausedReason }, 'the wallet is looked at again')
    }
    return paused
  }

  /** Lets another process take the wallet over at once. */
  async function release(): Promise<void> {
    if (lease) await releaseLease(context.sql, lease)
  }

  return { address, step, release }
}
