import type { Hash } from 'viem'
import type { Queryable } from './database.ts'
import { bothHalves, signedFor } from './halves.ts'

/** The network whose index is read, and its blocks (after, up to] to look at. */
export type NotificationScope = {
  chainId: number
  network: string
  after: bigint
  upTo: bigint
}

/** The block up to which providers were told of everything that settled. */
export async function readNotifiedBlock(sql: Queryable, chainId: number): Promise<bigint> {
  const [row] = await sql<{ block: bigint }[]>`
    select notified_block as block from acted_block where chain_id = ${chainId}`
  return row?.block ?? 0n
}

/** Does nothing if evidence that was found late has lowered it meanwhile. */
export async function moveNotifiedBlock(
  sql: Queryable,
  chainId: number,
  from: bigint,
  to: bigint,
): Promise<void> {
  await sql`
    insert into acted_block as acted (chain_id, block_number, notified_block) values (${chainId}, 0, ${to})
    on conflict (chain_id) do update set notified_block = excluded.notified_block
      where acted.notified_block = ${from}`
}

/**
 * Writes `payment.settled`, or `refund.settled`, for payments of which both halves have arrived, whoever sent them, and that were not said to
 * be settled or were taken back since.
 *
 * One statement: of two keepers at once, the one whose row is written tells it.
 *
 * @returns the blocks that it relied on, one a payment; as many as `limit` where there may be more.
 */
export async function notifySettled(
  sql: Queryable,
  { chainId, network, after, upTo }: NotificationScope,
  limit: number,
): Promise<bigint[]> {
  const rows = await sql<{ block: bigint }[]>`
    with touched as (
      select distinct a.payment_id
      from (
        select chain_id, token, authorizer, nonce from indexer.authorization
        where chain_id = ${chainId} and block_number > ${after} and block_number <= ${upTo} and state = 'used'
        union
        select chain_id, token, authorizer, nonce from evidence
        where chain_id = ${chainId} and block_number > ${after} and block_number <= ${upTo} and state = 'used'
      ) used
      ${signedFor(sql)}
      where not exists (select from payment_notification n where n.payment_id = a.payment_id and n.is_settled)
    ), settled as (
      select p.id, coalesce(p.provider_id, r.provider_id) as provider_id, r.of_payment_id, r.number, p.provider_amount,
        p.fee_amount, half.provider_tx, half.fee_tx, half.last_block, half.last_time
      from touched join payment p on p.id = touched.payment_id
      left join refund r on r.payment_id = p.id
      cross join lateral ${bothHalves(sql)} half
      where coalesce(p.provider_id, r.provider_id) is not null and half.provider = 'settled'
        and coalesce(half.fee, 'settled') = 'settled' and half.last_block <= ${upTo}
      order by p.id limit ${limit}
    ), said as (
      insert into payment_notification as n (payment_id, chain_id, provider_tx, fee_tx, block_number)
      select id, ${chainId}::integer, provider_tx, fee_tx, last_block from settled
      on conflict (payment_id) do update set provider_tx = excluded.provider_tx, fee_tx = excluded.fee_tx,
        block_number = excluded.block_number, is_settled = true, occurrence = n.occurrence + 1
        where not n.is_settled
      returning payment_id, occurrence
    ), written as (
      insert into outbox (event, provider_id, payment_id, tx_hash, occurrence, data)
      select case when s.number is null then 'payment.settled' else 'refund.settled' end,
        s.provider_id, s.id, s.provider_tx, said.occurrence,
        jsonb_build_object('network', ${network}::text, 'blockNumber', s.last_block,
          'settledAt', ${isoTime(sql, sql`s.last_time`)})
        || case
          when s.number is null then jsonb_build_object('providerUsdc', s.provider_amount::text,
            'platformUsdc', s.fee_amount::text, 'platformTxHash', s.fee_tx)
          else jsonb_build_object('paymentId', s.of_payment_id, 'number', s.number, 'valueUsdc', s.provider_amount::text)
        end
      from said join settled s on s.id = said.payment_id
    )
    select last_block as block from settled`
  return rows.map(({ block }) => block)
}

/** A payment that was said to be settled and doesn't look so now, and by which transactions it was. */
export type UnconfirmedPayment = { paymentId: string; hashes: Hash[] }

/** Payments of blocks after `after` that the index no longer shows as their providers were told. */
export async function readUnconfirmed(
  sql: Queryable,
  { chainId, after }: Pick<NotificationScope, 'chainId' | 'after'>,
  limit: number,
): Promise<UnconfirmedPayment[]> {
  const rows = await sql<{ paymentId: string; providerTx: Hash; feeTx: Hash | null }[]>`
    select p.id as "paymentId", n.provider_tx as "providerTx", n.fee_tx as "feeTx"
    from payment_notification n join payment p on p.id = n.payment_id
    cross join lateral ${bothHalves(sql)} half
    where n.chain_id = ${chainId} and n.is_settled and n.block_number > ${after}
      and (half.provider_tx is distinct from n.provider_tx or half.fee_tx is distinct from n.fee_tx)
    order by n.block_number, p.id limit ${limit}`
  return rows.map(({ paymentId, providerTx, feeTx }) => ({
    paymentId,
    hashes: [...new Set([providerTx, ...(feeTx === null ? [] : [feeTx])])],
  }))
}

/** Writes `payment.reverted`, or `refund.reverted`: what was said of it is no longer so. */
export async function notifyReverted(sql: Queryable, network: string, paymentIds: string[]): Promise<void> {
  await sql`
    with taken as (
      update payment_notification set is_settled = false
      where payment_id = any(${paymentIds}) and is_settled
      returning payment_id, provider_tx, occurrence
    )
    insert into outbox (event, provider_id, payment_id, tx_hash, occurrence, data)
    select case when r.number is null then 'payment.reverted' else 'refund.reverted' end,
      coalesce(p.provider_id, r.provider_id), p.id, taken.provider_tx, taken.occurrence,
      jsonb_build_object('network', ${network}::text)
        || case when r.number is null then '{}' else jsonb_build_object('paymentId', r.of_payment_id, 'number', r.number) end
    from taken join payment p on p.id = taken.payment_id
    left join refund r on r.payment_id = p.id`
}

/**
 * Writes `batch.confirmed` to each provider that has payments in a batch whose confirmation is written down.
 *
 * A batch that a reorg put into another block is confirmed anew there.
 */
export async function notifyBatches(
  sql: Queryable,
  { chainId, network, after, upTo }: NotificationScope,
): Promise<void> {
  await sql`
    with share as (
      select b.tx_hash, b.log_index, b.block_hash, b.sequence, b.block_time, c.confirmed_at, p.provider_id,
        count(distinct p.id) as payments, coalesce(sum(p.provider_amount) filter (where a.half = 0), 0) as net
      from indexer.batch b
      join confirmation c on c.chain_id = b.chain_id and c.block_number = b.block_number::bigint
        and c.block_hash = b.block_hash
      join indexer.authorization used
        on used.chain_id = b.chain_id and used.tx_hash = b.tx_hash and used.batch_log_index = b.log_index
      join signed_authorization a on a.chain_id = used.chain_id and a.token = used.token
        and a.authorizer = used.authorizer and a.nonce = used.nonce
        and a.recipient = used.recipient and a.value = used.value
      join payment p on p.id = a.payment_id
      where b.chain_id = ${chainId} and b.block_number > ${after} and b.block_number <= ${upTo}
        and p.provider_id is not null
        and not exists (
          select from batch_notification n
          where n.chain_id = b.chain_id and n.tx_hash = b.tx_hash and n.log_index = b.log_index
            and n.block_hash = b.block_hash
        )
      group by b.tx_hash, b.log_index, b.block_hash, b.sequence, b.block_time, c.confirmed_at, p.provider_id
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
