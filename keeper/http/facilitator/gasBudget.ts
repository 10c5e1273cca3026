import type { Address } from 'viem'
import { estimateFees } from '#chain/feeEstimate'
import { gasLimitsOf } from '#chain/gasLimits'
import type { ServedNetwork } from '#chain/servedNetworks'
import { estimateSettlementCost, readGasTokenPrice } from '#chain/settlementCost'
import { readFacilitatorCost } from '#ledger/batches/gasCosts'
import type { Queryable } from '#ledger/store/database'
import { createCache } from '#process/cache'
import type { GasBudgets, KeeperSettings } from '../../settings/settings.ts'
import { InvalidPayment } from './reasons.ts'

/** Holds what gas may cost for each caller of the facilitator; those without an API key are one. */
export type GasBudget = {
  /** @throws {InvalidPayment} where another payment could cost more than is left. */
  require(served: ServedNetwork, providerId: string | null): Promise<void>
  /** Counts a payment that was taken since the sums were read. */
  add(providerId: string | null): void
}

const costTtlMs = 1_000
const priceTtlMs = 15_000
const keyless = ''

/**
 * A payment that waits counts as if it got a transaction of its own, which is the most that it can cost; one that was mined
 * counts with its share. Other processes' payments of the last second may come on top.
 */
export function createGasBudget({
  sql,
  budgets,
  prices,
  from,
  now,
}: {
  sql: Queryable
  budgets: GasBudgets
  prices: KeeperSettings
  /** Any account: whose transaction it would be, for the estimate. */
  from: Address
  now: () => Date
}): GasBudget {
  const clock = () => now().getTime()
  const costs = createCache<string, { spent: bigint; open: number }>({
    load: (id) => readFacilitatorCost(sql, id === keyless ? null : id, now()),
    ttlMs: costTtlMs,
    max: 10_000,
    now: clock,
  })
  const latest = new Map<string, { open: number }>()
  const ofOne = createCache<ServedNetwork, bigint>({
    load: (served) => costOfOne(served, from, prices),
    ttlMs: 2 * priceTtlMs,
    refreshAfterMs: priceTtlMs,
    max: 100,
    now: clock,
  })

  return {
    async require(served, providerId) {
      const id = providerId ?? keyless
      const [cost, one] = await Promise.all([costs.get(id), ofOne.get(served)])
      latest.set(id, cost)
      const budget = providerId === null ? budgets.keyless : budgets.keyed
      if (cost.spent + BigInt(cost.open + 1) * one <= budget) return
      const whose = providerId === null ? 'of all callers without an API key' : 'of this API key'
      throw new InvalidPayment(null, `the daily gas budget ${whose} does not cover another payment`)
    },
    add(providerId) {
      const cost = latest.get(providerId ?? keyless)
      if (cost) cost.open += 1
    },
  }
}

async function costOfOne(
  { network, deployment, client }: ServedNetwork,
  from: Address,
  prices: KeeperSettings,
): Promise<bigint> {
  const [{ usdPerToken }, fees] = await Promise.all([
    readGasTokenPrice(client, network.ethUsdFeed, prices.gasTokenUsd),
    estimateFees(client, { ...prices, ...gasLimitsOf(network, prices) }),
  ])
  return estimateSettlementCost(client, {
    network,
    contract: deployment.batchSettlement,
    from,
    shape: { pairs: 0, singles: 1, payees: 1, hasCode: false },
    gasPrice: fees.baseFeePerGas + fees.maxPriorityFeePerGas,
    usdPerToken,
  })
}
