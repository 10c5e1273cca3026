import type { Queryable } from '../store/database.ts'

/** Adds what a mined transaction cost, in USDC base units, to its network's UTC day. */
export async function addGasCost(sql: Queryable, chainId: number, now: Date, cost: bigint): Promise<void> {
  await sql`
    insert into gas_cost as earlier (chain_id, day, cost) values (${chainId}, ${dayOf(now)}, ${cost})
    on conflict (chain_id, day) do update set cost = earlier.cost + excluded.cost`
}

/** What gas cost on a network on this UTC day so far, USDC base units. */
export async function readGasCost(sql: Queryable, chainId: number, now: Date): Promise<bigint> {
  const [row] = await sql<{ cost: bigint }[]>`
    select cost from gas_cost where chain_id = ${chainId} and day = ${dayOf(now)}`
  return BigInt(row?.cost ?? 0n)
}

/** What gas cost on a network on the UTC days since then, USDC base units. */
export async function sumGasCost(sql: Queryable, chainId: number, since: Date): Promise<bigint> {
  const [row] = await sql<[{ cost: bigint | null }]>`
    select sum(cost) as cost from gas_cost where chain_id = ${chainId} and day >= ${dayOf(since)}`
  return BigInt(row.cost ?? 0n)
}

/** Divides what a mined transaction cost among the facilitator's callers, by their payments in its batch. */
export async function addFacilitatorCost(
  sql: Queryable,
  batchId: bigint,
  now: Date,
  cost: bigint,
): Promise<void> {
  await sql`
    with items as materialized (
      select payment_id from queue where batch_id = ${batchId}
    ), costed as (
      update facilitation f set is_costed = true from items where f.payment_id = items.payment_id
      returning f.provider_id
    )
    insert into facilitator_cost as earlier (provider_id, day, cost)
    select provider_id, ${dayOf(now)}, ceil(${cost}::numeric * count(*) / (select count(*) from items))
    from costed group by provider_id order by provider_id
    on conflict (provider_id, day) do update set cost = earlier.cost + excluded.cost`
}

/** What a caller of the facilitator has cost on this UTC day, and how many payments of its will yet cost something. */
export async function readFacilitatorCost(
  sql: Queryable,
  providerId: string | null,
  now: Date,
): Promise<{ spent: bigint; open: number }> {
  const [row] = await sql<[{ spent: bigint | null; open: number }]>`
    select (select cost from facilitator_cost where provider_id is not distinct from ${providerId} and day = ${dayOf(now)}) as spent,
      (
        select count(*)::int from facilitation f join queue q on q.payment_id = f.payment_id
        where f.provider_id is not distinct from ${providerId} and not f.is_costed
      ) as open`
  return { spent: BigInt(row.spent ?? 0n), open: row.open }
}

function dayOf(now: Date): string {
  return now.toISOString().slice(0, 10)
}
