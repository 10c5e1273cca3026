import type { Address } from 'viem'
import type { Queryable } from '../store/database.ts'
import { type HoldReason, isFresh, isRetrying, isSent, isShown, waitsForGas } from './stages.ts'

export type QueueDepth = {
  payee: Address
  /** True if `payee` is the TabSettlement contract. The counted payments are then tabs, whose lines pay many wallets. */
  isTabs: boolean
  /** Number of payments that wait and never failed. */
  verified: number
  /** Number of payments that wait and failed before. */
  retrying: number
  /** Number of payments in a transaction that was sent and isn't final yet. */
  settling: number
  /** USDC base units that the wallet will receive from waiting payments and retries. */
  amount: bigint
  /** Acceptance time of the oldest waiting payment. */
  oldestAt: Date | null
}

/** Counts the payments in the queue by provider wallet and state. It reads the whole queue, so only metrics use it, at long intervals. */
export async function readQueueDepth(
  sql: Queryable,
  scope: { chainId: number; token: Address },
): Promise<QueueDepth[]> {
  return sql<QueueDepth[]>`
    select payee, bool_or(is_tab) as "isTabs",
      count(*) filter (where ${isFresh(sql)})::int as verified,
      count(*) filter (where ${isRetrying(sql)})::int as retrying,
      count(*) filter (where ${isSent(sql)})::int as settling,
      coalesce(sum(provider_amount) filter (where not ${isSent(sql)}), 0) as amount,
      min(accepted_at) filter (where ${isFresh(sql)}) as "oldestAt"
    from queue q
    where group_id in (select id from queue_group where chain_id = ${scope.chainId} and token = ${scope.token})
      and ${isShown(sql)}
    group by payee`
}

/** Counts the payments of a network that wait for cheaper gas, by reason. */
export async function countHeld(
  sql: Queryable,
  scope: { chainId: number; token: Address },
): Promise<Partial<Record<HoldReason, number>>> {
  const rows = await sql<{ reason: HoldReason; count: number }[]>`
    select held_by as reason, count(*)::int as count from queue q
    where group_id in (select id from queue_group where chain_id = ${scope.chainId} and token = ${scope.token})
      and ${waitsForGas(sql)}
    group by held_by`
  return Object.fromEntries(rows.map(({ reason, count }) => [reason, count]))
}

/** Counts the batches that are not closed, by state. */
export async function countOpenBatches(sql: Queryable, chainId: number): Promise<Record<string, number>> {
  const rows = await sql<{ state: string; count: number }[]>`
    select state, count(*)::int as count from batch where chain_id = ${chainId} and state <> 'closed' group by state`
  return Object.fromEntries(rows.map(({ state, count }) => [state, count]))
}
