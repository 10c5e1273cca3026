import type { Queryable } from '../store/database.ts'

/** Holds settlement on a network until `until`, because gas is too expensive; null lifts the hold. */
export async function setHold(sql: Queryable, chainId: number, until: Date | null): Promise<void> {
  if (until === null) await sql`delete from settlement_hold where chain_id = ${chainId}`
  else
    await sql`
      insert into settlement_hold (chain_id, held_until) values (${chainId}, ${until})
      on conflict (chain_id) do update set held_until = excluded.held_until`
}

/** Returns whether settlement on a network is held because gas is too expensive. */
export async function isHeld(sql: Queryable, chainId: number, now: Date): Promise<boolean> {
  const rows = await sql`select from settlement_hold where chain_id = ${chainId} and held_until > ${now}`
  return rows.length > 0
}
