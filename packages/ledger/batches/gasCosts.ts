import { utcDay } from '@tollkeeper/sdk/protocol/time'
import type { Queryable } from '../store/database.ts'

/** Reads what a network's gas has cost so far in this UTC day, in USDC base units. */
export async function readGasCost(sql: Queryable, chainId: number, now: Date): Promise<bigint> {
  const [row] = await sql<{ cost: bigint }[]>`
    select cost from gas_cost where chain_id = ${chainId} and day = ${utcDay(now)}`
  return BigInt(row?.cost ?? 0n)
}

/** Sums what a network's gas has cost in the UTC days since `since`, in USDC base units. */
export async function sumGasCost(sql: Queryable, chainId: number, since: Date): Promise<bigint> {
  const [row] = await sql<[{ cost: bigint | null }]>`
    select sum(cost) as cost from gas_cost where chain_id = ${chainId} and day >= ${utcDay(since)}`
  return BigInt(row.cost ?? 0n)
}
