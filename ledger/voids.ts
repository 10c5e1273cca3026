import type { Address, Hex } from 'viem'
import type { Queryable } from './database.ts'
import { halves } from './halves.ts'

export type VoidedHalf = { paymentId: string; from: Address; nonce: Hex }

/** A chain's clock may be so far behind ours. */
const graceSeconds = 600

/**
 * The provider halves of voided payments that could still be settled by somebody who saw the signatures, and aren't as far
 * as the index shows: the most valuable first, or from one payment to the next.
 */
export async function readVoidedHalves(
  sql: Queryable,
  chainId: number,
  now: Date,
  { limit, after }: { limit: number; after?: string },
): Promise<VoidedHalf[]> {
  return sql<VoidedHalf[]>`
    select p.id as "paymentId", h.authorizer as "from", h.nonce
    from payment p
    join lateral ${halves(sql)} h on h.payment_id = p.id
    where p.chain_id = ${chainId} and p.voided_at is not null and p.concluded_at is null and p.lookup_requested_at is null
      and h.half = 0 and h.state = 'open' and h.valid_before > extract(epoch from ${now}::timestamptz) - ${graceSeconds}
      ${after === undefined ? sql`` : sql`and p.id > ${after}`}
    order by ${after === undefined ? sql`p.provider_amount desc` : sql`p.id`}
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
