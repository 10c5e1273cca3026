import type { Queryable } from './database.ts'
import { halves } from './halves.ts'

/**
 * Payments that ran out: the indexed chain has passed their `validBefore`, they're in no batch, and a half is still open.
 *
 * @param blockTime Unix seconds, of the indexed head: every block that could have settled them has been seen.
 */
export async function readExpired(
  sql: Queryable,
  chainId: number,
  blockTime: bigint,
  limit: number,
): Promise<string[]> {
  const rows = await sql<{ id: string }[]>`
    select p.id from payment p
    where p.chain_id = ${chainId} and p.valid_before <= ${blockTime}
      and p.concluded_at is null and p.failed_at is null and p.voided_at is null and p.lookup_requested_at is null
      and not p.is_claimed
      and (select bool_or(h.state <> 'settled') and not bool_or(h.state = 'open' and h.valid_before > ${blockTime})
        from ${halves(sql)} h where h.payment_id = p.id)
    order by p.valid_before
    limit ${limit}
    for update of p skip locked`
  return rows.map((row) => row.id)
}
