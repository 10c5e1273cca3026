import { batchGasCut, countThatFit, mostPayments } from '#chain/gas'
import { type BatchRow, insertBatch } from '#ledger/batches'
import type { Queryable } from '#ledger/database'
import { findDueTrigger, type QueueReads } from '#ledger/dueTrigger'
import { type Lease, requireLease } from '#ledger/leases'
import {
  deferPayments,
  findFullWallet,
  lockClaims,
  lockWanted,
  type QueuedPayment,
  type QueueGroup,
  readExtremes,
  readGreatest,
  readGroups,
  readMostUrgent,
  readNextBatchSize,
  readSettleable,
  returnPutOff,
} from '#ledger/queue'
import { claimSubmission } from '#ledger/submissions'
import type { Context } from './context.ts'
import { failSpoiled } from './evidence.ts'

/** What a stranger settled is looked at again after this long, if it isn't concluded by then. */
const settledElsewhereMs = 15_000
/** Looks at the queue in one step, each of which may find a whole batch settled by others. */
const mostRounds = 50
/** So much of its time a keeper spends at most on looking at every provider wallet in vain. */
const countingShare = 0.1

/**
 * Claims the next batch for a wallet, if a trigger has fired: what was asked for through POST /submit first.
 *
 * The index must be current: what it calls open is taken for open, until the chain itself is asked.
 */
export async function claimNext(context: Context, lease: Lease): Promise<BatchRow | null> {
  const { sql, served, checkpoint } = context
  await checkpoint('before-claim')
  const direct = await sql.begin(async (tx) => {
    await requireLease(tx, lease)
    return claimSubmission(tx, lease, { token: served.token, batchId: context.randomBytes32() })
  })
  const batch = direct ?? (await claimQueued(context, lease))
  if (batch) await checkpoint('after-claim')
  return batch
}

async function claimQueued(context: Context, lease: Lease): Promise<BatchRow | null> {
  const { sql, served, now } = context
  const scope = { chainId: served.network.chainId, token: served.token }
  await returnPutOff(sql, scope, now())
  for (const group of await readGroups(sql, scope)) {
    // What was settled by others leaves the queue as it is found, so the triggers are asked again after each find.
    for (let round = 0; round < mostRounds; round++) {
      const claimed = await claimFrom(context, lease, group)
      if (claimed === 'look again') continue
      if (claimed) return claimed
      break
    }
  }
  return null
}

async function claimFrom(
  context: Context,
  lease: Lease,
  group: QueueGroup,
): Promise<BatchRow | null | 'look again'> {
  const { sql, served, settings, now } = context
  const { triggers } = settings
  const extremes = await readExtremes(sql, group, now())
  if (!extremes) return null
  const reads = {
    findFullWallet: createSparing(context, group),
    readSize: () => readNextBatchSize(sql, group, mostPayments),
  }
  const trigger = await findDueTrigger(served, lease.address, extremes, settings, reads, now())
  if (!trigger) return null

  const chosen =
    trigger === 'high_value'
      ? await readGreatest(sql, group, triggers.highValue, mostPayments)
      : await readMostUrgent(sql, group, {
          now: now(),
          below: triggers.highValue,
          expiryLeadMs: triggers.expiryLeadMs,
          limit: mostPayments,
        })
  if (chosen.length === 0) return null
  return sql.begin(async (tx) => {
    await requireLease(tx, lease)
    await lockClaims(tx, group.chainId)
    const wanted = await lockWanted(
      tx,
      chosen.map(({ id }) => id),
    )
    if (wanted.size < chosen.length) return 'look again' as const
    const settleable = await readSettleable(tx, [...wanted], now())
    if (settleable.size < chosen.length) {
      await setAside(context, tx, chosen, settleable)
      return 'look again' as const
    }
    const fit = trigger === 'high_value' ? 1 : countThatFit(chosen, chosen[0]?.hasCode ?? false, batchGasCut)
    return insertBatch(
      tx,
      lease,
      { batchId: context.randomBytes32(), token: group.token, feeRecipient: group.feeRecipient, trigger },
      chosen.slice(0, fit).map(({ id }) => ({ paymentId: id })),
    )
  }) as Promise<BatchRow | 'look again'>
}

/** Takes what can't be settled by us out of the way: the chain shows that somebody did, or that nobody can. */
async function setAside(
  context: Context,
  tx: Queryable,
  chosen: readonly QueuedPayment[],
  settleable: ReadonlySet<string>,
): Promise<void> {
  const others = chosen.filter(({ id }) => !settleable.has(id)).map(({ id }) => id)
  await deferPayments(tx, others, new Date(context.now().getTime() + settledElsewhereMs))
  await failSpoiled(context, tx, others)
}

/** Looks for a full wallet, but not again for a while where very many wallets were looked at in vain. */
function createSparing({ sql, memory }: Context, group: QueueGroup): QueueReads['findFullWallet'] {
  return async (threshold) => {
    const began = performance.now()
    if (began < (memory.noneFullUntil.get(group.feeRecipient) ?? 0)) return null
    const full = await findFullWallet(sql, group, threshold)
    const ended = performance.now()
    if (!full) memory.noneFullUntil.set(group.feeRecipient, ended + (ended - began) / countingShare)
    return full
  }
}
