import type { Address, TransactionReceipt } from 'viem'
import type { ServedNetwork } from '#chain/servedNetworks'
import { estimateSettlementCost, readGasTokenPrice, weiToUsd } from '#chain/settlementCost'
import type { WalletState } from '#chain/walletState'
import { feeOfItem } from '#ledger/batches/items'
import type { Plan, PlannedBatch } from './plan.ts'

export type CeilingSettings = {
  /** Gas may cost so many times the platform's fees that it settles; 0: whatever it costs. */
  gasPerFee: bigint
  /** USDC base units that gas may cost a UTC day; 0: no limit. */
  dailyBudget: bigint
}

/** Why a batch waits: the base fee is over the cap, its gas costs too much for its fees, or the day's budget is used up. */
export const holdReasons = ['gas_price', 'gas_cost', 'gas_budget'] as const
export type HoldReason = (typeof holdReasons)[number]

export type Hold = { reason: HoldReason; isHighValue: boolean }

export type Ceiling = {
  /** Why a batch must wait; null: it may go. What is about to expire may always. */
  check: (batch: PlannedBatch, plan: Plan, fees: WalletState['fees']) => Promise<Hold | null>
  /** Whether a plan is below all of it, whatever is urgent. */
  isBelow: (batch: PlannedBatch, plan: Plan, fees: WalletState['fees']) => Promise<boolean>
  /** What a mined transaction cost, in USDC base units. */
  costOf: (receipt: TransactionReceipt) => Promise<bigint>
}

export type CeilingOptions = {
  served: ServedNetwork
  address: Address
  settings: CeilingSettings & { maxFeePerGas: bigint; gasTokenUsd: bigint }
  expiryLeadMs: number
  spentToday: () => Promise<bigint>
  /** Told of each refusal. */
  onHold: (hold: Hold) => Promise<void>
  now: () => Date
}

const priceAgeMs = 60_000

/** What a wallet may pay for gas: a cap of its price, of a batch's cost by the fees in it, and of a day's cost. */
export function createCeiling(options: CeilingOptions): Ceiling {
  const { served, address, settings, expiryLeadMs, spentToday, onHold, now } = options
  let price = { usdPerToken: 0n, at: Number.NEGATIVE_INFINITY }

  async function readPrice(): Promise<bigint> {
    if (now().getTime() - price.at >= priceAgeMs) {
      const { usdPerToken } = await readGasTokenPrice(
        served.client,
        served.network.ethUsdFeed,
        settings.gasTokenUsd,
      )
      price = { usdPerToken, at: now().getTime() }
    }
    return price.usdPerToken
  }

  async function findReason(
    batch: PlannedBatch,
    plan: Plan,
    fees: WalletState['fees'],
  ): Promise<HoldReason | null> {
    if (fees.baseFeePerGas > settings.maxFeePerGas) return 'gas_price'
    if (settings.gasPerFee === 0n && settings.dailyBudget === 0n) return null
    const cost = await estimateSettlementCost(served.client, {
      network: served.network,
      contract: served.deployment.batchSettlement,
      from: address,
      shape: plan.shape,
      gasPrice: fees.baseFeePerGas + fees.maxPriorityFeePerGas,
      usdPerToken: await readPrice(),
    })
    // Whoever asks for a transaction of its own may pay no fee by it; and what refunds alone cost is bounded by the payments
    // that paid a fee for them. Held back, they would hold up whatever comes after them.
    const paysNoFee = batch.trigger === 'direct' || plan.entries.every(({ item }) => item.isRefund)
    if (settings.gasPerFee > 0n && !paysNoFee && cost > settings.gasPerFee * feesOf(plan)) return 'gas_cost'
    if (settings.dailyBudget > 0n && (await spentToday()) + cost > settings.dailyBudget) return 'gas_budget'
    return null
  }

  return {
    async check(batch, plan, fees) {
      const reason = await findReason(batch, plan, fees)
      if (reason === null || isUrgent(plan, now(), expiryLeadMs)) return null
      const hold = { reason, isHighValue: batch.trigger === 'high_value' }
      await onHold(hold)
      return hold
    },
    isBelow: async (batch, plan, fees) => (await findReason(batch, plan, fees)) === null,
    async costOf(receipt) {
      const l1Fee = 'l1Fee' in receipt && typeof receipt.l1Fee === 'bigint' ? receipt.l1Fee : 0n
      return weiToUsd(receipt.gasUsed * receipt.effectiveGasPrice + l1Fee, await readPrice())
    },
  }
}

function feesOf({ entries }: Plan): bigint {
  return entries.reduce((sum, { item }) => sum + feeOfItem(item), 0n)
}

/** It would not be settled any more: SPEC.md's hour holds below the ceiling, a payment's validity above it. */
function isUrgent({ entries }: Plan, now: Date, expiryLeadMs: number): boolean {
  const until = BigInt(Math.floor((now.getTime() + expiryLeadMs) / 1000))
  return entries.some(({ settlement }) => settlement.authorization.validBefore <= until)
}
