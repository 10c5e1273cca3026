import type { Queryable } from '../store/database.ts'

/** How old a cost may be to say which thresholds hold. A keeper looks every few seconds while a threshold is reached. */
const maxAgeMs = 600_000
/** How often it is written at most. */
const writeEveryMs = 5_000

/** Records what settling the next batch of a network would cost, for the gateway's estimates. Writes rarely. */
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

/** What a keeper last saw that settling would cost, by chain, USDC base units; 0: none saw it lately, because nothing was due. */
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
