import type { Address } from 'viem'
import type { Trigger } from '#protocol/settlement'
import { mostPayments } from '../domain/gas.ts'
import { firedTrigger, type TriggerSettings, type WaitingPayments } from '../domain/triggers.ts'
import { estimateFees } from './feeEstimate.ts'
import type { ServedNetwork } from './servedNetworks.ts'
import { estimateSettlementCost, readGasTokenPrice } from './settlementCost.ts'

export type CostSettings = {
  priorityFeePerGas: bigint | null
  maxFeePerGas: bigint
  gasTokenUsd: bigint
}

/**
 * The trigger that has fired, at the thresholds that hold at the current price of settling; null if none has.
 *
 * @param from whose transaction it would be.
 * @param readSize how much the next batch would settle; asked only where its cost makes a difference.
 */
export async function findDueTrigger(
  served: ServedNetwork,
  from: Address,
  waiting: WaitingPayments,
  settings: { triggers: TriggerSettings } & CostSettings,
  readSize: () => Promise<{ payments: number; payees: number }>,
  now: Date,
): Promise<Trigger | null> {
  const { triggers } = settings
  const whenCheap = firedTrigger(waiting, triggers, 0n, now)
  const whenDear = firedTrigger(waiting, triggers, triggers.raisedAboveCost + 1n, now)
  if (whenCheap === whenDear) return whenCheap
  const cost = await costOfSettling(served, from, settings, await readSize())
  return cost > triggers.raisedAboveCost ? whenDear : whenCheap
}

async function costOfSettling(
  { network, deployment, client }: ServedNetwork,
  from: Address,
  settings: CostSettings,
  { payments, payees }: { payments: number; payees: number },
): Promise<bigint> {
  const [{ usdPerToken }, fees] = await Promise.all([
    readGasTokenPrice(client, network.ethUsdFeed, settings.gasTokenUsd),
    estimateFees(client, settings),
  ])
  return estimateSettlementCost(client, {
    network,
    contract: deployment.batchSettlement,
    from,
    shape: { pairs: Math.min(payments, mostPayments), singles: 0, payees, hasCode: false },
    gasPrice: fees.baseFeePerGas + fees.maxPriorityFeePerGas,
    usdPerToken,
  })
}
