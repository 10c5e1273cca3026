import type { Address } from 'viem'
import type { Trigger } from '#protocol/settlement'
import { estimateFees } from '../chain/feeEstimate.ts'
import { estimateSettlementCost, readGasTokenPrice } from '../chain/settlementCost.ts'
import { batchGasCut, countThatFit, mostPayments } from '../domain/gas.ts'
import { firstFired } from '../domain/triggers.ts'
import { type BatchRow, insertBatch } from '../store/batches.ts'
import { type Lease, requireLease } from '../store/leases.ts'
import { lockClaims, lockMostUrgent, type QueueGroup, readQueue } from '../store/queue.ts'
import { claimSubmission } from '../store/submissions.ts'
import type { Context } from './context.ts'

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
  const { sql, served, settings, now } = context
  const scope = { chainId: served.network.chainId, token: served.token, indexerSchema: context.indexerSchema }
  const groups = await readQueue(sql, scope, now())
  reportQueue(context, groups)

  for (const group of groups) {
    const trigger = await findTrigger(context, lease.address, group)
    if (!trigger) continue

    const batch = await sql.begin(async (tx) => {
      await requireLease(tx, lease)
      await lockClaims(tx, scope.chainId)
      const chosen = await lockMostUrgent(
        tx,
        { ...scope, feeRecipient: group.feeRecipient },
        now(),
        trigger === 'high_value'
          ? { from: settings.triggers.highValue, limit: 1 }
          : { below: settings.triggers.highValue, limit: mostPayments },
      )
      const fit = countThatFit(chosen, chosen[0]?.hasCode ?? false, batchGasCut)
      if (fit === 0) return null
      return insertBatch(
        tx,
        lease,
        { batchId: context.randomBytes32(), token: served.token, feeRecipient: group.feeRecipient, trigger },
        chosen.slice(0, fit).map(({ id }) => ({ paymentId: id })),
      )
    })
    if (batch) return batch
  }
  return null
}

async function findTrigger(context: Context, from: Address, group: QueueGroup): Promise<Trigger | null> {
  const { settings, now } = context
  const at = now()
  const whenCheap = firstFired(group.wallets, settings.triggers, 0n, at)
  const whenDear = firstFired(group.wallets, settings.triggers, settings.triggers.raisedAboveCost + 1n, at)
  // The cost only has to be known where it makes a difference.
  if (whenCheap === whenDear) return whenCheap
  return (await costOfSettling(context, from, group)) > settings.triggers.raisedAboveCost
    ? whenDear
    : whenCheap
}

/** What settling the whole group would cost now, cut into batches as it will be. */
async function costOfSettling(context: Context, from: Address, group: QueueGroup): Promise<bigint> {
  const { served, settings } = context
  const { network, deployment, client } = served
  const [{ usdPerToken }, fees] = await Promise.all([
    readGasTokenPrice(client, network.ethUsdFeed, settings.gasTokenUsd),
    estimateFees(client, settings),
  ])
  return estimateSettlementCost(client, {
    network,
    contract: deployment.batchSettlement,
    from,
    shape: {
      pairs: Math.min(group.paymentCount, mostPayments),
      singles: 0,
      payees: group.wallets.length,
      hasCode: false,
    },
    gasPrice: fees.baseFeePerGas + fees.maxPriorityFeePerGas,
    usdPerToken,
  })
}

const reported = new WeakMap<Context, Set<string>>()

function reportQueue(context: Context, groups: QueueGroup[]): void {
  const { metrics, served, now } = context
  const network = served.network.name
  const wallets = groups.flatMap((group) => group.wallets)
  const payees = new Set<string>(wallets.map((wallet) => wallet.payee))
  for (const payee of reported.get(context) ?? []) {
    if (payees.has(payee)) continue
    metrics.queuedPayments.remove({ network, payee })
    metrics.queueOldestSeconds.remove({ network, payee })
  }
  reported.set(context, payees)
  for (const { payee, paymentCount, firstQueuedAt } of wallets) {
    metrics.queuedPayments.set({ network, payee }, paymentCount)
    metrics.queueOldestSeconds.set({ network, payee }, (now().getTime() - firstQueuedAt.getTime()) / 1000)
  }
}
