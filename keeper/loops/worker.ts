import type { Address } from 'viem'
import { setHold } from '#ledger/holds'
import { readIndexedHead } from '#ledger/indexedHead'
import { type Lease, type LeaseState, resumeWallet } from '#ledger/leases'
import { createCeiling, type Hold } from '../settler/ceiling.ts'
import type { SettlerContext } from '../settler/context.ts'
import { createPostgresJournal } from '../settler/postgresJournal.ts'
import { settleClaimed } from '../settler/settle.ts'
import { trackBatch } from '../settler/track.ts'
import { claimNext } from './claim.ts'
import type { Context, SettlementWallet } from './context.ts'
import { readIndexState } from './indexState.ts'
import { createLeased, type Leased, type StepResult } from './lease.ts'

/** A batch that costs too much is looked at again after this long. */
const holdMs = 15_000

/** One wallet of one network at work. */
export function createWorker(context: Context, holder: string, wallet: SettlementWallet): Leased {
  return createLeased(context, holder, wallet.address, (lease) => step(context, lease, wallet))
}

async function step(context: Context, lease: LeaseState, wallet: SettlementWallet): Promise<StepResult> {
  const settler = createSettlerContext(context, lease, wallet)
  const open = await settler.journal.readOpen()
  if (open && open.offers.length > 0) return (await trackBatch(settler, open)) ? 'busy' : 'idle'
  if (open) {
    await settleClaimed(settler, wallet, open)
    return 'idle'
  }
  if (await isPaused(context, lease)) return 'idle'
  if ((await readIndexState(context)).status !== 'current') return 'idle'
  const claimed = await claimNext(context, lease)
  if (!claimed) return 'idle'
  await settleClaimed(settler, wallet, settler.journal.open(claimed))
  return 'busy'
}

/** What the settler works with where the journal is the database. */
export function createSettlerContext(context: Context, lease: Lease, wallet: SettlementWallet | null) {
  const { sql, served, settings, now, memory } = context
  const journal = createPostgresJournal(context, lease)
  const ceiling = createCeiling({
    served,
    address: lease.address,
    settings,
    expiryLeadMs: settings.triggers.expiryLeadMs,
    spentToday: journal.spentToday,
    onHold: (hold) => holdLanes(context, hold),
    now,
  })
  return {
    ...context,
    address: lease.address,
    wallet,
    journal,
    ceiling,
    readNotBefore: async () => (await readIndexedHead(sql, served.network.chainId))?.blockNumber ?? 0n,
    missingSince: memory.missingSince,
  } satisfies SettlerContext
}

/** Lets payments wait, but for what is about to expire, and says why. */
async function holdLanes(context: Context, { reason, isHighValue }: Hold): Promise<void> {
  const { sql, served, now, memory, metrics } = context
  const until = now().getTime() + holdMs
  // The price and the day's budget are everybody's; a batch's cost by its fees is of those that share batches with it.
  const kinds = reason === 'gas_cost' ? [isHighValue] : [false, true]
  for (const kind of kinds) {
    memory.heldUntil[kind ? 'highValue' : 'ordinary'] = until
    await setHold(sql, { chainId: served.network.chainId, isHighValue: kind, reason, until: new Date(until) })
  }
  metrics.holds.inc({ network: served.network.name, reason })
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
