import type { Queryable } from './database.ts'
import { halves } from './halves.ts'

/**
 * The sweep that paid out the payment `p`, which pays a splitter: a lateral subquery of at most one row.
 *
 * Whole units are all that a splitter pays, a payment is made of whole units, and a sweep pays all that is there. So the
 * first one after a payment came in holds it. Columns: `tx_hash`, `log_index`, `block_number`, `block_time`, and
 * `is_platform_paid`, false where the platform's wallet couldn't be paid and its part waits in a splitter of its own.
 */
export function payoutOf(sql: Queryable) {
  return sql`(
    select o.tx_hash, o.log_index, o.block_number, o.block_time,
      o.platform_recipient = p.fee_recipient as is_platform_paid
    from ${halves(sql)} paid
    join indexer.payout o on o.chain_id = paid.chain_id and o.token = paid.token and o.splitter = paid.recipient
      and (o.block_number, o.log_index) > (paid.block_number, paid.log_index)
    where p.splitter is not null and paid.payment_id = p.id and paid.half = 0 and paid.state = 'settled'
    order by o.block_number, o.log_index
    limit 1
  )`
}

/** What was paid to the splitter `s` since it was last swept, by the index or else by evidence: a query, not yet a subquery. */
export function paidSince(sql: Queryable) {
  return sql`
    select paid.authorizer, paid.nonce, paid.block_number, paid.log_index, paid.block_time
    from (
      select coalesce(max(o.block_number), -1) as block_number, coalesce(max(o.log_index), -1) as log_index
      from (
        select block_number, log_index from indexer.payout
        where chain_id = s.chain_id and token = s.token and splitter = s.address
        order by block_number desc, log_index desc
        limit 1
      ) o
    ) swept
    cross join lateral (
      select authorizer, nonce, block_number, log_index, block_time from indexer.authorization
      where chain_id = s.chain_id and recipient = s.address and token = s.token
        and block_number >= swept.block_number
      union
      select authorizer, nonce, block_number, log_index, block_time from evidence
      where chain_id = s.chain_id and recipient = s.address and token = s.token
        and block_number >= swept.block_number
    ) paid
    where (paid.block_number, paid.log_index) > (swept.block_number, swept.log_index)`
}
