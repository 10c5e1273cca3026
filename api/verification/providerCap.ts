import type { Database } from '#ledger/database'
import { createCache } from '#process/cache'
import { formatUsdc } from '#protocol/amount'
import { Refusal } from '../refusal.ts'

/** Holds what may be unsettled for one provider. */
export type ProviderCap = {
  /** @throws {Refusal} `provider_limit_exceeded` */
  require(providerId: string, amount: bigint): Promise<void>
  /** Counts what was accepted here since the sum was read. */
  add(providerId: string, amount: bigint): void
}

/**
 * A brake for when settlement stands still, not an invariant: the sum is read every few seconds, and what other
 * processes accepted since may come on top.
 *
 * @param options.cap USDC base units; null: none, and nothing is read.
 */
export function createProviderCap({
  database,
  cap,
  now,
}: {
  database: Database
  cap: bigint | null
  now: () => number
}): ProviderCap {
  const sums = createCache<string, { unsettled: bigint }>({
    load: async (providerId) => ({ unsettled: await sumUnconcluded(database, providerId) }),
    ttlMs: 5_000,
    max: 10_000,
    now,
  })
  const seen = new Map<string, { unsettled: bigint }>()
  return {
    async require(providerId, amount) {
      if (cap === null) return
      const sum = await sums.get(providerId)
      seen.set(providerId, sum)
      if (sum.unsettled + amount <= cap) return
      throw new Refusal(
        'provider_limit_exceeded',
        `At most ${formatUsdc(cap)} USDC may be unsettled for a provider`,
      )
    },
    add(providerId, amount) {
      const sum = seen.get(providerId)
      if (sum !== undefined) sum.unsettled += amount
    },
  }
}

/** Concluded is what the chain can't take back any more: a little later than settled. */
async function sumUnconcluded(database: Database, providerId: string): Promise<bigint> {
  const [row] = await database<[{ sum: bigint }]>`
    select coalesce(sum(provider_amount + fee_amount), 0) as sum from payment
    where provider_id = ${providerId} and concluded_at is null and failed_at is null and voided_at is null`
  return row.sum
}
