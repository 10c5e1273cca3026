import type { Hash } from 'viem'
import { hasMoved } from '../facts/halves.ts'
import type { RecordedBlock } from '../facts/record.ts'
import type { Queryable } from '../store/database.ts'

/** A network, and the recorded block that was just confirmed or lost. */
export type NotificationScope = { chainId: number; network: string; block: RecordedBlock }

function isBlock(sql: Queryable, { chainId, block }: NotificationScope) {
  return sql`b.chain_id = ${chainId} and b.number = ${block.blockNumber} and b.hash = ${block.blockHash}`
}

const settledEvents = ['payment.settled', 'refund.settled', 'tab.settled'] as const

/** Returns the condition that the outbox's row `o` is the latest notification about a payment's settlement and says that it settled. */
function isPending(sql: Queryable) {
  return sql`o.event in ${sql(settledEvents)} and not exists (
    select from outbox r
    where r.event = replace(o.event, '.settled', '.reverted') and r.payment_id = o.payment_id and r.occurrence = o.occurrence
  )`
}

/** Returns the condition that the latest notification to the providers of the payment `p` says that it settled. */
function isTold(sql: Queryable) {
  return sql`exists (select from outbox o where o.payment_id = p.id and ${isPending(sql)})`
}

/**
 * Writes `payment.settled`, `refund.settled` or `tab.settled` for payments whose last half arrived in a block that was just confirmed,
 * regardless of who sent the transaction, unless their providers were already notified. Each provider with sales on a tab receives a separate
 * message, if some of the money for these sales arrived.
 *
 * @returns the number of messages written.
 */
export async function notifySettled(sql: Queryable, scope: NotificationScope): Promise<number> {
  const { count } = await sql`
    with touched as (
      select distinct e.payment_id from recorded_block b join authorization_event e on e.block_id = b.id
      where ${isBlock(sql, scope)} and ${hasMoved(sql)}
    )
    insert into outbox (event, provider_id, payment_id, tx_hash, occurrence, data)
    select share.subject || '.settled', share.provider_id, p.id, moved.tx_hash,
      1 + (select coalesce(max(t.occurrence), 0) from outbox t where t.event in ${sql(settledEvents)} and t.payment_id = p.id),
      jsonb_build_object('network', ${scope.network}::text, 'blockNumber', moved.block_number,
        'settledAt', iso_time(to_timestamp(moved.time))) || share.data || share.settled_data
    from touched join payment p on p.id = touched.payment_id
    cross join lateral (
      select count(*) as halves, max(e.tx_hash) filter (where e.half = 0) as tx_hash, max(b.number) as block_number, max(b.time) as time,
        bool_and(b.confirmed_at is not null) as is_confirmed
      from authorization_event e join recorded_block b on b.id = e.block_id
      where e.payment_id = p.id and ${hasMoved(sql)}
    ) moved
    cross join lateral event_shares(p.id) share
    where share.settled_net > 0 and moved.is_confirmed and not ${isTold(sql)}
      and moved.halves = (select count(*) from signed_authorization a where a.payment_id = p.id)
    order by p.id, share.provider_id
    on conflict do nothing`
  return count
}

/** A payment that was notified as settled and had a half in a lost block, and the transactions in the notification. */
export type DoubtfulPayment = { paymentId: string; hashes: Hash[] }

/** Reads the payments of a block that were notified as settled. */
export async function readTold(sql: Queryable, scope: NotificationScope): Promise<DoubtfulPayment[]> {
  return sql<DoubtfulPayment[]>`
    select p.id as "paymentId", moved.hashes
    from (
      select distinct e.payment_id from recorded_block b join authorization_event e on e.block_id = b.id
      where ${isBlock(sql, scope)}
    ) touched
    join payment p on p.id = touched.payment_id
    cross join lateral (
      select array_agg(distinct e.tx_hash::text) as hashes, bool_or(e.half = 0) as has_provider
      from authorization_event e where e.payment_id = p.id and ${hasMoved(sql)}
    ) moved
    where moved.has_provider and ${isTold(sql)}
    order by p.id`
}

/** Writes `payment.reverted`, `refund.reverted` or `tab.reverted`, because the earlier notification is no longer true. */
export async function notifyReverted(
  sql: Queryable,
  network: string,
  paymentIds: readonly string[],
): Promise<void> {
  if (paymentIds.length === 0) return
  await sql`
    insert into outbox (event, provider_id, payment_id, tx_hash, occurrence, data)
    select replace(o.event, '.settled', '.reverted'), o.provider_id, o.payment_id, o.tx_hash, o.occurrence,
      -- Identify the reverted item in the same way as the earlier event: by the payment and number of a refund, or by the tab.
      jsonb_build_object('network', ${network}::text) || coalesce((
        select jsonb_object_agg(key, value) from jsonb_each(o.data) where key in ('paymentId', 'number', 'tabId')
      ), '{}')
    from outbox o
    where o.payment_id = any(${[...paymentIds]}::text[]) and ${isPending(sql)}
    order by o.id
    on conflict do nothing`
}

/**
 * Writes `batch.confirmed` to each provider with payments, or with sales on tabs, in a batch of a confirmed block in (after, upTo]. Each request on
 * a tab counts as one payment.
 *
 * If a reorg moved a batch to another block, providers are notified again when that block is confirmed.
 */
export async function notifyBatches(
  sql: Queryable,
  { chainId, network, after, upTo }: { chainId: number; network: string; after: bigint; upTo: bigint },
): Promise<void> {
  await sql`
    with moved as materialized (
      select batch.*, e.payment_id, e.half
      from (
        select b.id as block_id, b.hash as block_hash, b.time as block_time, b.confirmed_at, s.tx_hash, s.log_index, s.sequence
        from recorded_block b join settled_batch s on s.block_id = b.id and s.sequence is not null
        where b.chain_id = ${chainId} and b.number > ${after} and b.number <= ${upTo} and b.confirmed_at is not null
          and not exists (
            select from batch_notification n
            where n.chain_id = b.chain_id and n.tx_hash = s.tx_hash and n.log_index = s.log_index
              and n.block_hash = b.hash
          )
        -- Keep this subquery first: a plan that joins the payments earlier would read the payments of every notified batch.
        offset 0
      ) batch
      join authorization_event e on e.block_id = batch.block_id and ${hasMoved(sql)} and e.tx_hash = batch.tx_hash
        and (e.batch_log_index = batch.log_index or e.source = 'receipt')
    ), own as (
      -- Lists each payment of a batch once, with the provider's part if that moved in the batch.
      select moved.tx_hash, moved.log_index, moved.payment_id, bool_or(moved.half = 0) as has_provider from moved group by 1, 2, 3
    ), share as (
      select batch.*, sold.provider_id, sum(sold.payments) as payments, sum(sold.net) as net
      from (
        select distinct tx_hash, log_index, block_hash, sequence, block_time, confirmed_at from moved
      ) batch
      join own on own.tx_hash = batch.tx_hash and own.log_index = batch.log_index
      cross join lateral (
        select s.provider_id, case when s.source = 'tab' then share.settled_payments else s.requests end as payments, case when own.has_provider then share.settled_net else 0 end as net
        from sale s
        cross join lateral settled_halves(s.payment_id, s.fee_half) half
        cross join lateral sale_share(s, false, half.settled) share
        where s.payment_id = own.payment_id and s.provider_id is not null and share.arrived > 0
      ) sold
      group by batch.tx_hash, batch.log_index, batch.block_hash, batch.sequence, batch.block_time, batch.confirmed_at, sold.provider_id
    ), said as (
      insert into batch_notification as n (chain_id, tx_hash, log_index, provider_id, block_hash)
      select ${chainId}::integer, tx_hash, log_index, provider_id, block_hash from share
      order by tx_hash, log_index, provider_id
      on conflict (chain_id, tx_hash, log_index, provider_id) do update
        set block_hash = excluded.block_hash, occurrence = n.occurrence + 1
        where n.block_hash <> excluded.block_hash
      returning tx_hash, log_index, provider_id, occurrence
    )
    insert into outbox (event, provider_id, tx_hash, occurrence, data)
    select 'batch.confirmed', provider_id, tx_hash, said.occurrence, jsonb_build_object(
      'network', ${network}::text, 'batchId', share.sequence, 'payments', share.payments,
      'providerUsdc', share.net::text, 'createdAt', iso_time(to_timestamp(share.block_time)),
      'confirmedAt', iso_time(share.confirmed_at))
    from said join share using (tx_hash, log_index, provider_id)`
}
