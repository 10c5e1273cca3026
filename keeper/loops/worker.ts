import type { BatchRow } from '@tollkeeper/ledger/batches/batches'
import {
  acquireLease,
  type Lease,
  type LeaseState,
  pauseWallet,
  releaseLease,
} from '@tollkeeper/ledger/batches/leases'
import { readRecordHead } from '@tollkeeper/ledger/facts/record'
import { advanceBatch } from '../settler/advance.ts'
import type { SettlementWallet, SettlerContext } from '../settler/context.ts'
import { claimNext } from './claim.ts'
import type { Context } from './context.ts'
import { createLedgerGasControl } from './ledgerGas.ts'
import { createPostgresJournal } from './postgresJournal.ts'
import { readRecordState } from './recordState.ts'

/** `busy`: there may be more to do at once. `idle`: nothing to do before the next poll. */
export type StepResult = 'busy' | 'idle'

/**
 * One wallet of one network at work, under its lease, in one process at a time. Memory holds nothing that matters: each step
 * starts from what is stored.
 */
export function createWorker(context: Context, holder: string, wallet: SettlementWallet) {
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
      return whileRenewed(acquire, settings.leaseMs, () => step(context, own, wallet))
    },
    /** Lets another process take the wallet over at once. */
    async release(): Promise<void> {
      if (lease) await releaseLease(sql, lease)
    },
  }
}

/** Renews a lease while the work goes on. A slow RPC may make it outlast the lease. The next fenced write notices a failed renewal. */
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

async function step(context: Context, lease: LeaseState, wallet: SettlementWallet): Promise<StepResult> {
  const settler = createSettlerContext(context, lease, wallet)
  const open = await settler.journal.readOpen()
  const claimed = open === null ? await claimIfReady(context, lease) : null
  const batch = open ?? (claimed && settler.journal.open(claimed))
  if (batch === null) return 'idle'
  const progress = await advanceBatch(settler, batch)
  return claimed !== null || progress === 'mined' ? 'busy' : 'idle'
}

async function claimIfReady(context: Context, lease: LeaseState): Promise<BatchRow | null> {
  if (await isPaused(context, lease)) return null
  if ((await readRecordState(context)).status !== 'current') return null
  return claimNext(context, lease)
}

/** The settler's dependencies if the journal is the database. */
export function createSettlerContext(context: Context, lease: Lease, wallet: SettlementWallet | null) {
  const { sql, served, memory } = context
  return {
    ...context,
    address: lease.address,
    wallet,
    journal: createPostgresJournal(context, lease),
    gas: createLedgerGasControl(context),
    readNotBefore: async () => (await readRecordHead(sql, served.network.chainId))?.readNumber ?? 0n,
    missingSince: memory.missingSince,
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
    log.info({ wallet: address, reason: pausedReason }, 'the wallet is looked at again')
  }
  return paused
}
