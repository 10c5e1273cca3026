import type { Queryable } from '../store/database.ts'

/**
 * Maximum age in ms of a cost that decides which thresholds apply. While a threshold is reached, a keeper updates the cost every few
 * seconds.
 */
const maxAgeMs = 600_000
/** Minimum interval in ms between two writes. */
const writeEveryMs = 5_000

/** Creates the function that records the cost of a network's next batch, for the gateway's estimates. It writes rarely. */
export function createCostRecorder(sql: Queryable, chainId: number) {
  let writtenAt = Number.NEGATIVE_INFINITY
  return async (cost: bigint, now: Date): Promise<void> => {
    if (now.getTime() - writtenAt < writeEveryMs) return
    writtenAt = now.getTime()
    await sql`
      insert into settling_cost (chain_id, cost, seen_at) values (${chainId}, ${cost}, ${now})
      on conflict (chain_id) do update set cost = excluded.cost, seen_at = excluded.seen_at`
  }
}

/** Reads each chain's latest settling cost that a keeper recorded, in USDC base units; 0 if none is recent because nothing was due. */
export async function readSettlingCosts(
  sql: Queryable,
  chainIds: readonly number[],
  now: Date,
): Promise<(chainId: number) => bigint> {
  const since = new Date(now.getTime() - maxAgeMs)
  const rows = await sql<{ chainId: number; cost: bigint }[]>`
    select chain_id as "chainId", cost from settling_cost
    where chain_id = any(${[...chainIds]}::integer[]) and seen_at > ${since}`
  const costs = new Map(rows.map(({ chainId, cost }) => [chainId, cost]))
  return (chainId) => costs.get(chainId) ?? 0n
}
