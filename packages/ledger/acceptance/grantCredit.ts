import type { Address } from 'viem'
import type { Queryable } from '../store/database.ts'

/** Credit on tabs that an operator granted a payer beyond earned credit. */
export type GrantedCredit = {
  chainId: number
  payer: Address
  /** USDC base units. */
  amount: bigint
  reason: string
  grantedAt: Date
}

/** Grants a payer credit, or removes the grant if the amount is null. The gateway applies it within five minutes. */
export async function grantCredit(
  sql: Queryable,
  {
    chainId,
    payer,
    amount,
    reason,
  }: Pick<GrantedCredit, 'chainId' | 'payer' | 'reason'> & { amount: bigint | null },
): Promise<void> {
  if (amount === null) {
    await sql`delete from granted_credit where chain_id = ${chainId} and payer = ${payer}`
    return
  }
  await sql`
    insert into granted_credit (chain_id, payer, amount, reason) values (${chainId}, ${payer}, ${amount}, ${reason})
    on conflict (chain_id, payer) do update set amount = excluded.amount, reason = excluded.reason, granted_at = now()`
}

/** Lists all grants, the latest first. */
export async function findGrantedCredit(sql: Queryable, limit: number): Promise<GrantedCredit[]> {
  return sql<GrantedCredit[]>`
    select chain_id as "chainId", payer, amount, reason, granted_at as "grantedAt" from granted_credit
    order by granted_at desc, payer limit ${limit}`
}
