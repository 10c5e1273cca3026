import type { Queryable } from '../store/database.ts'

/** Why payments of a network wait beyond what may be spent on gas. */
export type SettlementHold = {
  chainId: number
  /** Of payments that travel alone, or of all others. */
  isHighValue: boolean
  reason: 'gas_price' | 'gas_cost' | 'gas_budget'
  until: Date
}

export async function setHold(
  sql: Queryable,
  { chainId, isHighValue, reason, until }: SettlementHold,
): Promise<void> {
  await sql`
    insert into settlement_hold (chain_id, is_high_value, reason, held_until)
    values (${chainId}, ${isHighValue}, ${reason}, ${until})
    on conflict (chain_id, is_high_value) do update
      set reason = excluded.reason, held_until = excluded.held_until`
}

/** Why payments of a network wait at the moment; null: they don't. */
export async function readHold(
  sql: Queryable,
  chainId: number,
  now: Date,
): Promise<SettlementHold['reason'] | null> {
  const [row] = await sql<Pick<SettlementHold, 'reason'>[]>`
    select reason from settlement_hold where chain_id = ${chainId} and held_until > ${now}
    order by is_high_value limit 1`
  return row?.reason ?? null
}
