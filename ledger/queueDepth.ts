import type { Address } from 'viem'
import type { Queryable } from './database.ts'

export type QueueDepth = {
  payee: Address
  verified: number
  retrying: number
  /** In a batch: under way, or not final yet. */
  settling: number
  /** USDC base units that its wallet gets of what waits, retries included. */
  amount: bigint
  /** Of the oldest that waits. */
  oldestAt: Date | null
}

/** What isn't concluded, by provider wallet and by what the keeper does with it. Reads all of it: for metrics, now and then. */
export async function readQueueDepth(
  sql: Queryable,
  scope: { chainId: number; token: Address },
): Promise<QueueDepth[]> {
  return sql<QueueDepth[]>`
    select payee,
      count(*) filter (where not is_claimed and attempts = 0)::int as verified,
      count(*) filter (where not is_claimed and attempts > 0)::int as retrying,
      count(*) filter (where is_claimed)::int as settling,
      coalesce(sum(provider_amount) filter (where not is_claimed), 0) as amount,
      min(accepted_at) filter (where not is_claimed and attempts = 0) as "oldestAt"
    from payment
    where chain_id = ${scope.chainId} and token = ${scope.token}
      and concluded_at is null and failed_at is null and voided_at is null and spent_block is null
    group by payee`
}

/** Batches that are not closed, by state. */
export async function countOpenBatches(sql: Queryable, chainId: number): Promise<Record<string, number>> {
  const rows = await sql<{ state: string; count: number }[]>`
    select state, count(*)::int as count from batch where chain_id = ${chainId} and state <> 'closed' group by state`
  return Object.fromEntries(rows.map(({ state, count }) => [state, count]))
}
