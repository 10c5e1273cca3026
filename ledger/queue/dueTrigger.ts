import type { Address } from 'viem'
import { estimateFees } from '#chain/feeEstimate'
import { mostPairs } from '#chain/gas'
import type { ServedNetwork } from '#chain/servedNetworks'
import { estimateSettlementCost, readGasTokenPrice } from '#chain/settlementCost'
import type { Trigger } from '#protocol/settlement'
import type { NextBatchSize } from './queue.ts'
import { firedTrigger, type TriggerSettings, type WaitingPayments } from './triggers.ts'

export type CostSettings = {
  priorityFeePerGas: bigint | null
  maxFeePerGas: bigint
  gasTokenUsd: bigint
}

/** Questions to the queue that are asked only where the answer matters. */
export type QueueReads = {
  /** A provider wallet for which enough waits: by amount, or by number. */
  findFullWallet: (threshold: {
    amount: bigint
    count: number
  }) => Promise<Pick<WaitingPayments, 'paymentCount' | 'amount'> | null>
  /** How much the next batch would settle. */
  readSize: () => Promise<NextBatchSize>
}

/**
 * The trigger that has fired, at the thresholds that hold at the current price of settling; null if none has.
 *
 * @param from whose transaction it would be.
 */
export async function findDueTrigger(
  served: ServedNetwork,
  from: Address,
  extremes: Omit<WaitingPayments, 'paymentCount' | 'amount'>,
  settings: { triggers: TriggerSettings } & CostSettings,
  { findFullWallet, readSize }: QueueReads,
  now: Date,
): Promise<Trigger | null> {
  const { triggers } = settings
  const [cheap, dear] = [0n, triggers.raisedAboveCost + 1n]
  const urgent = firedTrigger({ ...extremes, paymentCount: 1, amount: 0n }, triggers, cheap, now)
  if (urgent === 'high_value' || urgent === 'expiry') return urgent

  const full = await findFullWallet(triggers)
  if (!full) return urgent
  const whenCheap = firedTrigger({ ...extremes, ...full }, triggers, cheap, now)
  if (firedTrigger({ ...extremes, ...full }, triggers, dear, now) === whenCheap) return whenCheap
  const cost = await costOfSettling(served, from, settings, await readSize())
  if (cost <= triggers.raisedAboveCost) return whenCheap
  const fuller = await findFullWallet({ amount: triggers.raisedAmount, count: triggers.raisedCount })
  return fuller ? firedTrigger({ ...extremes, ...fuller }, triggers, dear, now) : urgent
}

async function costOfSettling(
  { network, deployment, client }: ServedNetwork,
  from: Address,
  settings: CostSettings,
  { pairs, ...size }: NextBatchSize,
): Promise<bigint> {
  const [{ usdPerToken }, fees] = await Promise.all([
    readGasTokenPrice(client, network.ethUsdFeed, settings.gasTokenUsd),
    estimateFees(client, settings),
  ])
  return estimateSettlementCost(client, {
    network,
    contract: deployment.batchSettlement,
    from,
    shape: { ...size, pairs: Math.min(pairs, mostPairs), hasCode: false },
    gasPrice: fees.baseFeePerGas + fees.maxPriorityFeePerGas,
    usdPerToken,
  })
}
