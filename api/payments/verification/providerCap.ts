import { openSales } from '@tollkeeper/ledger/sales/sales'
import type { Database } from '@tollkeeper/ledger/store/database'
import { isTestnet } from '@tollkeeper/ledger/store/networks'
import { createCache } from '@tollkeeper/runtime/cache'
import { formatUsdc } from '@tollkeeper/sdk/protocol/amount'
import { Refusal } from '../../http/refusal.ts'

/** Limits the unsettled amount of each provider, separately for real money and test money. */
export type ProviderCap = {
  /** @throws {Refusal} `provider_limit_exceeded` */
  require(providerId: string, testnet: boolean, amount: bigint): Promise<void>
  /** Counts a payment that was accepted by this process after the sum was read. */
  add(providerId: string, testnet: boolean, amount: bigint): void
}

/**
 * Creates the limit, which slows sales down if settlement stops. It isn't exact: the sum is read every few seconds, without payments that
 * other processes have accepted since.
 *
 * @param options.cap USDC base units; null: no limit, and nothing is read.
 */
export function createProviderCap({
  sql,
  cap,
  now,
}: {
  sql: Database
  cap: bigint | null
  now: () => number
}): ProviderCap {
  const sums = createCache<string, { unsettled: bigint }>({
    load: async (key) => {
      const [providerId, testnet] = JSON.parse(key) as [string, boolean]
      return { unsettled: await sumUnsettled(sql, { providerId, testnet, now: new Date(now()) }) }
    },
    ttlMs: 5_000,
    max: 10_000,
    now,
  })
  const seen = new Map<string, { unsettled: bigint }>()
  return {
    async require(providerId, testnet, amount) {
      if (cap === null) return
      const key = JSON.stringify([providerId, testnet])
      const sum = await sums.get(key)
      seen.set(key, sum)
      if (sum.unsettled + amount <= cap) return
      throw new Refusal(
        'provider_limit_exceeded',
        `A provider can have at most ${formatUsdc(cap)} USDC unsettled`,
      )
    },
    add(providerId, testnet, amount) {
      const sum = seen.get(JSON.stringify([providerId, testnet]))
      if (sum !== undefined) sum.unsettled += amount
    },
  }
}

/**
 * Sums the sales that may still settle: their result isn't final, and they are neither failed nor voided. Sales on open tabs count only in the
 * process that accepted them. That is enough, because tabs close even if settlement stops.
 */
async function sumUnsettled(
  sql: Database,
  { providerId, testnet, now }: { providerId: string; testnet: boolean; now: Date },
): Promise<bigint> {
  const [row] = await sql<[{ sum: bigint }]>`
    select coalesce(sum(open.provider_amount + open.fee_amount), 0) as sum
    from ${openSales(sql, { providerId, now })} open
    where ${isTestnet(sql, sql`open.chain_id`)} = ${testnet} and open.status not in ('failed', 'voided')`
  return row.sum
}
