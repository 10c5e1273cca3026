import type { Queryable } from '../store/database.ts'
import { halves } from './halves.ts'

/**
 * Returns a lateral subquery that finds the sweep that paid out the payment `p` from its splitter. It has no row if there was no such sweep yet, or
 * if the payment doesn't pay a splitter.
 *
 * A sweep pays out the splitter's whole balance, so the first sweep after a payment arrived contains the payment.
 * Columns: `tx_hash`, `log_index`, `block_number`, `block_time`, and `is_platform_paid`, which is false if the platform's wallet couldn't
 * be paid and its part waits in a splitter that pays only the platform.
 */
export function payoutOf(sql: Queryable) {
  return sql`(
    select o.tx_hash, o.log_index, b.number as block_number, b.time as block_time, o.is_platform_paid
    from ${halves(sql)} paid
    join payout o on o.splitter = paid.recipient
    join recorded_block b on b.id = o.block_id and b.chain_id = paid.chain_id
      and (b.number, o.log_index) > (paid.block_number, paid.log_index)
    where p.splitter is not null and paid.payment_id = p.id and paid.half = 0 and paid.state = 'settled'
    order by b.number, o.log_index
    limit 1
  )`
}

/** Returns the payments that arrived in the splitter `s` since its last sweep, as a query without parentheses. */
export function paidSince(sql: Queryable) {
  return sql`
    select e.payment_id, b.number as block_number, e.log_index, b.time as block_time
    from (
      select coalesce(max(number), -1) as number, coalesce(max(log_index), -1) as log_index
      from (
        select b.number, o.log_index from payout o join recorded_block b on b.id = o.block_id
        where o.splitter = s.address and b.chain_id = s.chain_id
        order by b.number desc, o.log_index desc
        limit 1
      ) o
    ) swept
    cross join lateral (select * from authorization_event e where e.splitter = s.address and e.state = 'settled') e
    join recorded_block b on b.id = e.block_id and b.chain_id = s.chain_id
    where (b.number, e.log_index) > (swept.number, swept.log_index)`
}
