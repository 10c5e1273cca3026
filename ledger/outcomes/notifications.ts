import type { Hash } from 'viem'
import { bothHalves } from '../facts/halves.ts'
import type { RecordedBlock } from '../facts/record.ts'
import type { Queryable } from '../store/database.ts'

/** A network, and the block of its record that was just confirmed, or is gone. */
export type NotificationScope = { chainId: number; network: string; block: RecordedBlock }

function isBlock(sql: Queryable, { chainId, block }: NotificationScope) {
  return sql`b.chain_id = ${chainId} and b.number = ${block.blockNumber} and b.hash = ${block.blockHash}`
}

/** Whether the provider of the payment `p` was told last that it settled. */
function isTold(sql: Queryable) {
  return sql`exists (
    select from outbox o
    where o.event in ('payment.settled', 'refund.settled') and o.payment_id = p.id
      and not exists (
        select from outbox r
        where r.event in ('payment.reverted', 'refund.reverted') and r.payment_id = p.id and r.occurrence = o.occurrence
      )
  )`
}

/**
 * Writes `payment.settled`, or `refund.settled`, for payments of which the last half arrived in a block that was just
 * confirmed, whoever sent them, unless their providers were told that already.
 *
 * @returns how many.
 */
export async function notifySettled(sql: Queryable, scope: NotificationScope): Promise<number> {
  const { count } = await sql`
    with touched as (
      select distinct e.payment_id from recorded_block b join authorization_event e on e.block_id = b.id
      where ${isBlock(sql, scope)} and e.state = 'settled'
    )
    insert into outbox (event, provider_id, payment_id, tx_hash, occurrence, data)
    select case when r.number is null then 'payment.settled' else 'refund.settled' end,
      coalesce(p.provider_id, r.provider_id), p.id, half.provider_tx,
      1 + (select coalesce(max(t.occurrence), 0) from outbox t
        where t.event in ('payment.settled', 'refund.settled') and t.payment_id = p.id),
      jsonb_build_object('network', ${scope.network}::text, 'blockNumber', half.last_block,
        'settledAt', ${isoTime(sql, sql`half.last_time`)})
      || case
        when r.number is null then jsonb_build_object('providerUsdc', p.provider_amount::text,
          'platformUsdc', p.fee_amount::text, 'platformTxHash', half.fee_tx)
        else jsonb_build_object('paymentId', r.of_payment_id, 'number', r.number, 'valueUsdc', p.provider_amount::text)
      end
    from touched join payment p on p.id = touched.payment_id
    left join refund r on r.payment_id = p.id
    cross join lateral ${bothHalves(sql)} half
    where coalesce(p.provider_id, r.provider_id) is not null and half.provider = 'settled'
      and coalesce(half.fee, 'settled') = 'settled' and not ${isTold(sql)}
      and not exists (
        select from authorization_event e join recorded_block b on b.id = e.block_id
        where e.payment_id = p.id and b.confirmed_at is null
      )
    order by p.id
    on conflict do nothing`
  return count
}

/** A payment that was said to be settled, of which a half stood in a block that is gone, and the transactions that were told. */
export type DoubtfulPayment = { paymentId: string; hashes: Hash[] }

/** Payments of a block that their providers take for settled. */
export async function readTold(sql: Queryable, scope: NotificationScope): Promise<DoubtfulPayment[]> {
  const rows = await sql<{ paymentId: string; providerTx: Hash; feeTx: Hash | null }[]>`
    select p.id as "paymentId", half.provider_tx as "providerTx", half.fee_tx as "feeTx"
    from (
      select distinct e.payment_id from recorded_block b join authorization_event e on e.block_id = b.id
      where ${isBlock(sql, scope)}
    ) touched
    join payment p on p.id = touched.payment_id
    cross join lateral ${bothHalves(sql)} half
    where half.provider_tx is not null and ${isTold(sql)}
    order by p.id`
  return rows.map(({ paymentId, providerTx, feeTx }) => ({
    paymentId,
    hashes: [...new Set([providerTx, ...(feeTx === null ? [] : [feeTx])])],
  }))
}

/** Writes `payment.reverted`, or `refund.reverted`: what was said of it is no longer so. */
export async function notifyReverted(
  sql: Queryable,
  network: string,
  paymentIds: readonly string[],
): Promise<void> {
  if (paymentIds.length === 0) return
  await sql`
    insert into outbox (event, provider_id, payment_id, tx_hash, occurrence, data)
    select case when r.number is null then 'payment.reverted' else 'refund.reverted' end,
      coalesce(p.provider_id, r.provider_id), p.id, told.tx_hash, told.occurrence,
      jsonb_build_object('network', ${network}::text)
        || case when r.number is null then '{}' else jsonb_build_object('paymentId', r.of_payment_id, 'number', r.number) end
    from payment p
    left join refund r on r.payment_id = p.id
    cross join lateral (
      select tx_hash, occurrence from outbox o
      where o.event in ('payment.settled', 'refund.settled') and o.payment_id = p.id
      order by occurrence desc limit 1
    ) told
    where p.id = any(${[...paymentIds]}::text[]) and ${isTold(sql)}
    on conflict do nothing`
}

/**
 * Writes `batch.confirmed` to each provider that has payments in a batch of a confirmed block in (after, upTo].
 *
 * A batch that a reorg put into another block is confirmed anew there.
 */
export async function notifyBatches(
  sql: Queryable,
  { chainId, network, after, upTo }: { chainId: number; network: string; after: bigint; upTo: bigint },
): Promise<void> {
  await sql`
    with share as (
      select batch.tx_hash, batch.log_index, batch.block_hash, batch.sequence, batch.time as block_time, batch.confirmed_at,
        p.provider_id, count(distinct p.id) as payments, coalesce(sum(p.provider_amount) filter (where e.half = 0), 0) as net
      from (
        select b.id as block_id, b.hash as block_hash, b.time, b.confirmed_at, s.tx_hash, s.log_index, s.sequence
        from recorded_block b join settled_batch s on s.block_id = b.id and s.sequence is not null
        where b.chain_id = ${chainId} and b.number > ${after} and b.number <= ${upTo} and b.confirmed_at is not null
          and not exists (
            select from batch_notification n
            where n.chain_id = b.chain_id and n.tx_hash = s.tx_hash and n.log_index = s.log_index
              and n.block_hash = b.hash
          )
        -- First: a plan that joins the payments before would read those of every batch that was told of.
        offset 0
      ) batch
      join authorization_event e on e.block_id = batch.block_id and e.state = 'settled' and e.tx_hash = batch.tx_hash
        and (e.batch_log_index = batch.log_index or e.source = 'receipt')
      join payment p on p.id = e.payment_id and p.provider_id is not null
      group by batch.tx_hash, batch.log_index, batch.block_hash, batch.sequence, batch.time, batch.confirmed_at, p.provider_id
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
      'providerUsdc', share.net::text, 'createdAt', ${isoTime(sql, sql`share.block_time`)},
      'confirmedAt', ${isoTime(sql, sql`extract(epoch from share.confirmed_at)`)})
    from said join share using (tx_hash, log_index, provider_id)`
}

/** Unix seconds as the API writes times. */
function isoTime(sql: Queryable, seconds: ReturnType<typeof sql>) {
  return sql`to_char(to_timestamp(${seconds}) at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS".000Z"')`
}
