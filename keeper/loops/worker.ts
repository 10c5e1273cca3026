import type { Address } from 'viem'
import { type Lease, type LeaseState, resumeWallet } from '#ledger/batches/leases'
import { readRecordHead } from '#ledger/facts/record'
import { advanceBatch } from '../settler/advance.ts'
import type { SettlementWallet, SettlerContext } from '../settler/context.ts'
import { claimNext } from './claim.ts'
import type { Context } from './context.ts'
import { createLedgerCeiling } from './holds.ts'
import { createLeased, type Leased, type StepResult } from './lease.ts'
import { createPostgresJournal } from './postgresJournal.ts'
import { readRecordState } from './recordState.ts'

/** One wallet of one network at work. */
export function createWorker(context: Context, holder: string, wallet: SettlementWallet): Leased {
  return createLeased(context, holder, wallet.address, (lease) => step(context, lease, wallet))
}

async function step(context: Context, lease: LeaseState, wallet: SettlementWallet): Promise<StepResult> {
  const settler = createSettlerContext(context, lease, wallet)
  const open = await settler.journal.readOpen()
  if (open) return (await advanceBatch(settler, open)) === 'mined' ? 'busy' : 'idle'
  if (await isPaused(context, lease)) return 'idle'
  if ((await readRecordState(context)).status !== 'current') return 'idle'
  const claimed = await claimNext(context, lease)
  if (!claimed) return 'idle'
  await advanceBatch(settler, settler.journal.open(claimed))
  return 'busy'
}

/** What the settler works with where the journal is the database. */
export function createSettlerContext(context: Context, lease: Lease, wallet: SettlementWallet | null) {
  const { sql, served, memory } = context
  return {
    ...context,
    address: lease.address,
    wallet,
    journal: createPostgresJournal(context, lease),
    ceiling: createLedgerCeiling(context),
    readNotBefore: async () => (await readRecordHead(sql, served.network.chainId))?.readNumber ?? 0n,
    missingSince: memory.missingSince,
  } satisfies SettlerContext
}

async function isPaused(
  { sql, served, metrics, log, now }: Context,
  { address, pausedUntil, pausedReason }: LeaseState & { address: Address },
): Promise<boolean> {
  const labels = { network: served.network.name, wallet: address }
  const paused = pausedUntil !== null && pausedUntil > now()
  metrics.walletPaused.set(labels, paused ? 1 : 0)
  if (pausedUntil && !paused) {
    await resumeWallet(sql, { chainId: served.network.chainId, address })
    log.info({ wallet: address, reason: pausedReason }, 'the wallet is looked at again')
  }
  return paused
}
