import type { Queryable } from '../store/database.ts'

/** Sends nothing on a network until then, because gas is too dear; null lifts it. */
export async function setHold(sql: Queryable, chainId: number, until: Date | null): Promise<void> {
  if (until === null) await sql`delete from settlement_hold where chain_id = ${chainId}`
  else
    await sql`
      insert into settlement_hold (chain_id, held_until) values (${chainId}, ${until})
      on conflict (chain_id) do update set held_until = excluded.held_until`
}

/** Whether a network sends nothing because gas is too dear. */
export async function isHeld(sql: Queryable, chainId: number, now: Date): Promise<boolean> {
  const rows = await sql`select from settlement_hold where chain_id = ${chainId} and held_until > ${now}`
  return rows.length > 0
}
