import {
  acquireLease,
  type Lease,
  type LeaseState,
  pauseWallet,
  releaseLease,
} from '@tollkeeper/ledger/batches/leases'
import { readRecordHead } from '@tollkeeper/ledger/facts/record'
import { beginBatch, followBatches, mayBegin } from '../settler/advance.ts'
import { toLanesInFlight } from '../settler/batchCut.ts'
import type { SettlementWallet, SettlerContext } from '../settler/context.ts'
import type { OpenBatch } from '../settler/journal.ts'
import { claimNext } from './claim.ts'
import type { Context } from './context.ts'
import { createPostgresJournal } from './postgresJournal.ts'
import { readRecordState } from './recordState.ts'

/** `busy` if there may be more to do at once, `idle` if there is nothing to do before the next poll. */
export type StepResult = 'busy' | 'idle'

/**
 * Creates the worker of one wallet on one network. It works only while it holds the wallet's lease, so one process at a time uses the
 * wallet. It may lose its memory at any time, because each step starts from the stored state.
 *
 * @param onMined called when a batch was found mined, so that its receipt can be recorded
 */
export function createWorker(
  context: Context,
  holder: string,
  wallet: SettlementWallet,
  onMined: () => void = () => {},
) {
  const { sql, served, settings } = context
  const { address } = wallet
  let lease: LeaseState | null = null
  const acquire = () =>
    acquireLease(sql, { chainId: served.network.chainId, address, holder, ttlMs: settings.leaseMs })
  return {
    address,
    async step(): Promise<StepResult> {
      lease = await acquire()
      if (!lease) return 'idle'
      const own = lease
      return whileRenewed(acquire, settings.leaseMs, async () => {
        const { result, hasMined } = await step(context, own, wallet)
        if (hasMined) onMined()
        return result
      })
    },
    /** Releases the lease, so that another process can use the wallet at once. */
    async release(): Promise<void> {
      if (lease) await releaseLease(sql, lease)
    },
  }
}

/**
 * Renews a lease during work that may outlast it, for example because of a slow RPC. A failed renewal is ignored here: the next write that requires
 * the lease fails.
 */
export async function whileRenewed<Result>(
  renew: () => Promise<unknown>,
  leaseMs: number,
  work: () => Promise<Result>,
): Promise<Result> {
  const renewal = setInterval(() => void renew().catch(() => {}), leaseMs / 3)
  try {
    return await work()
  } finally {
    clearInterval(renewal)
  }
}

async function step(
  context: Context,
  lease: LeaseState,
  wallet: SettlementWallet,
): Promise<{ result: StepResult; hasMined: boolean }> {
  const settler = createSettlerContext(context, lease, wallet)
  let open = await settler.journal.readOpen()
  const followed = await followBatches(settler, open)
  // The next step decides whether the mined transactions pause the wallet.
  if (followed.progress === 'mined') return { result: 'busy', hasMined: true }
  if (followed.progress === 'sent') open = await settler.journal.readOpen()
  let hasClaimed = false
  let { hasGap } = followed
  for (;;) {
    const unsigned = open.find(({ offers }) => offers.length === 0)
    const inFlight = open.filter((one) => one !== unsigned)
    const next =
      unsigned ?? (mayBegin(settler, open, hasGap) ? await claimIfReady(context, lease, settler, open) : null)
    hasClaimed ||= next !== null && next !== unsigned
    if (next === null || (await beginBatch(settler, next, inFlight)) !== 'sent') break
    // The batch has filled the gap, because it took the lowest free nonce.
    hasGap = false
    open = await settler.journal.readOpen()
  }
  return { result: hasClaimed ? 'busy' : 'idle', hasMined: false }
}

async function claimIfReady(
  context: Context,
  lease: LeaseState,
  { journal }: ReturnType<typeof createSettlerContext>,
  inFlight: readonly OpenBatch[],
): Promise<OpenBatch | null> {
  if (await isPaused(context, lease)) return null
  if ((await readRecordState(context)).status !== 'current') return null
  const claimed = await claimNext(context, lease, toLanesInFlight(inFlight))
  return claimed && journal.open(claimed)
}

/** Creates the settler's context with a journal in the database. */
export function createSettlerContext(context: Context, lease: Lease, wallet: SettlementWallet | null) {
  const { sql, served, memory } = context
  return {
    ...context,
    address: lease.address,
    wallet,
    journal: createPostgresJournal(context, lease),
    readNotBefore: async () => (await readRecordHead(sql, served.network.chainId))?.readNumber ?? 0n,
    missingSince: memory.missingSince,
    fundedInFlight: memory.fundedInFlight,
  } satisfies SettlerContext
}

async function isPaused(
  { sql, served, metrics, log, now }: Context,
  { address, pausedUntil, pausedReason }: LeaseState,
): Promise<boolean> {
  const labels = { network: served.network.name, wallet: address }
  const paused = pausedUntil !== null && pausedUntil > now()
  metrics.walletPaused.set(labels, paused ? 1 : 0)
  if (pausedUntil && !paused) {
    await pauseWallet(sql, { chainId: served.network.chainId, address }, null, null)
    log.info({ wallet: address, reason: pausedReason }, 'the wallet is no longer paused')
  }
  return paused
}
