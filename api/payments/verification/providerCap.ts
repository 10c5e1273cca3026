import { isShown } from '@tollkeeper/ledger/queue/stages'
import type { Database } from '@tollkeeper/ledger/store/database'
import { isTestnet } from '@tollkeeper/ledger/store/networks'
import { createCache } from '@tollkeeper/runtime/cache'
import { formatUsdc } from '@tollkeeper/sdk/protocol/amount'
import { Refusal } from '../../http/refusal.ts'

/** Bounds what may be unsettled for one provider, real money and test money apart. */
export type ProviderCap = {
  /** @throws {Refusal} `provider_limit_exceeded` */
  require(providerId: string, testnet: boolean, amount: bigint): Promise<void>
  /** Counts a payment that was accepted here since the sum was read. */
  add(providerId: string, testnet: boolean, amount: bigint): void
}

/**
 * It brakes when settlement stands still, but isn't exact: the sum is read every few seconds, without what other
 * processes accepted since.
 *
 * @param options.cap USDC base units; null: there is none, and nothing is read.
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
      return { unsettled: await sumUnsettled(sql, providerId, testnet) }
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
        `At most ${formatUsdc(cap)} USDC may be unsettled for a provider`,
      )
    },
    add(providerId, testnet, amount) {
      const sum = seen.get(JSON.stringify([providerId, testnet]))
      if (sum !== undefined) sum.unsettled += amount
    },
  }
}

/**
 * The sum of the payments that aren't over, or that the chain could still take back, and of sales on closed tabs.
 * Sales on open tabs count where they were accepted; when settlement stands still, tabs close all the same.
 */
async function sumUnsettled(sql: Database, providerId: string, testnet: boolean): Promise<bigint> {
  const [row] = await sql<[{ sum: bigint }]>`
    select coalesce(sum(p.provider_amount + p.fee_amount), 0) + (
      select coalesce(sum(s.provider_amount + s.fee_amount), 0) from tab_sale s
      where s.provider_id = ${providerId} and s.arrived is null and ${isTestnet(sql, sql`s.chain_id`)} = ${testnet}
    ) as sum
    from (
      select payment_id from queue q where provider_id = ${providerId} and ${isShown(sql)}
      union all
      select payment_id from outcome where provider_id = ${providerId} and kind = 'spent' and final_at is null
    ) open
    join payment p on p.id = open.payment_id
    where ${isTestnet(sql, sql`p.chain_id`)} = ${testnet}`
  return row.sum
}
