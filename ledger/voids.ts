import type { Address, Hex } from 'viem'
import type { Queryable } from './database.ts'
import { type HalfState, halves } from './halves.ts'

export type VoidedHalf = { paymentId: string; authorizer: Address; nonce: Hex; state: HalfState }

/** The provider halves of voided payments that could still be settled by somebody who saw the signatures. */
export async function readVoidedHalves(
  sql: Queryable,
  chainId: number,
  now: Date,
  limit: number,
): Promise<VoidedHalf[]> {
  return sql<VoidedHalf[]>`
    select p.id as "paymentId", h.authorizer, h.nonce, h.state
    from payment p
    join lateral ${halves(sql)} h on h.payment_id = p.id
    where p.chain_id = ${chainId} and p.voided_at is not null and p.concluded_at is null and h.half = 0
      and (h.state = 'settled' or h.valid_before > extract(epoch from ${now}::timestamptz) - 600)
    order by h.state = 'open', p.valid_before
    limit ${limit}`
}

/** Counts payments again whose provider took its half after having voided them. */
export async function unvoidPayments(sql: Queryable, paymentIds: readonly string[]): Promise<void> {
  await sql`
    with taken as (
      update payment set voided_at = null where id in ${sql(paymentIds)} and voided_at is not null returning provider_id
    )
    update provider set void_violations = void_violations + (
      select count(*) from taken where taken.provider_id = provider.id
    )
    where id in (select provider_id from taken)`
}

/**
 * Wipes the signatures of voided payments whose time is over; nobody can settle them any more.
 *
 * @param blockTime Unix seconds, of the indexed head: every block that could have held them has been seen.
 */
export async function wipeVoidedSignatures(
  sql: Queryable,
  chainId: number,
  blockTime: bigint,
  now: Date,
): Promise<number> {
  const rows = await sql<{ id: string }[]>`
    update payment p set concluded_at = ${now}
    where p.chain_id = ${chainId} and p.voided_at is not null and p.concluded_at is null and p.valid_before <= ${blockTime}
      and (select max(a.valid_before) from signed_authorization a where a.payment_id = p.id) <= ${blockTime}
      and not exists (select from ${halves(sql)} h where h.payment_id = p.id and h.state = 'settled')
    returning p.id`
  if (rows.length > 0) {
    await sql`
      update signed_authorization set signature = null
      where payment_id in ${sql(rows.map((row) => row.id))} and signature is not null`
  }
  return rows.length
}
