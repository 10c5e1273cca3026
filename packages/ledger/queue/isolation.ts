import type { Address, Hex } from 'viem'
import type { Queryable } from '../store/database.ts'
import { type QueuedPayment, type QueueGroup, type QueueScope, queuedColumns } from './queue.ts'
import { endIsolation, isIsolated, isolatePayments, isUnbatched } from './stages.ts'

// A payer whose payment passes the simulation and fails when it is mined may have deceived the simulation. We limit the cost by counting
// failures, without detecting deception. After the first such failure, the payer's payments settle separately, one at a time. After the second such
// failure, none of them is attempted.

/** Once payments of a payer have failed in this many of our transactions, all its waiting payments fail without being sent. */
const mostMinedFailures = 2

/** How a payer's payments are settled: together with other payers' payments, separately, or not at all. */
export type PayerStanding = 'good' | 'isolated' | 'blocked'

/** @param minedFailures number of our transactions in which the payer's payments failed. */
export function payerStanding(minedFailures: number): PayerStanding {
  if (minedFailures >= mostMinedFailures) return 'blocked'
  return minedFailures > 0 ? 'isolated' : 'good'
}

/** Counts the blocked payers of a network. */
export async function countBlockedPayers(sql: Queryable, chainId: number): Promise<number> {
  const [row] = await sql<[{ count: number }]>`
    select count(*)::int as count from payer where chain_id = ${chainId} and mined_failures >= ${mostMinedFailures}`
  return row.count
}

/** Counts a transaction in which these payers' payments failed, and isolates their other waiting payments. */
export async function isolatePayers(
  sql: Queryable,
  { chainId, token }: QueueScope,
  payers: readonly Address[],
): Promise<void> {
  if (payers.length === 0) return
  const rows = await sql<{ id: string }[]>`
    with counted as (
      update payer set mined_failures = mined_failures + 1
      where chain_id = ${chainId} and token = ${token} and address = any(${[...new Set(payers)]}::text[])
      returning address
    )
    select q.payment_id as id from queue q
    join queue_group g on g.id = q.group_id and g.chain_id = ${chainId} and g.token = ${token}
    where q.payer in (select address from counted) and ${isUnbatched(sql)}`
  await isolatePayments(
    sql,
    rows.map(({ id }) => id),
  )
}

/** A payer that was unblocked on a network. */
export type UnblockedPayer = {
  chainId: number
  token: Address
  /** Number of transactions in which its payments had failed. */
  minedFailures: number
  /** Number of its payments that were isolated. */
  released: number
}

/**
 * Resets a payer's count of failed transactions, and ends the isolation of its waiting payments. Payments that are in a batch or have
 * failed stay unchanged. Call it in a transaction.
 *
 * @param chainId only on this network; undefined for all networks.
 * @returns one entry for each network and token on which the payer is known, even if it wasn't blocked there.
 */
export async function unblockPayer(
  tx: Queryable,
  { payer, chainId }: { payer: Address; chainId: number | undefined },
  now: Date,
): Promise<UnblockedPayer[]> {
  const known = await tx<Omit<UnblockedPayer, 'released'>[]>`
    select chain_id as "chainId", token, mined_failures as "minedFailures" from payer
    where address = ${payer} ${chainId === undefined ? tx`` : tx`and chain_id = ${chainId}`}
    order by chain_id, token for update`
  const unblocked: UnblockedPayer[] = []
  for (const row of known) {
    const { chainId, token } = row
    if (row.minedFailures > 0)
      await tx`
        update payer set mined_failures = 0
        where chain_id = ${chainId} and token = ${token} and address = ${payer}`
    const isolated = await tx<{ id: string }[]>`
      select q.payment_id as id from queue q
      join queue_group g on g.id = q.group_id and g.chain_id = ${chainId} and g.token = ${token}
      where q.payer = ${payer} and ${isIsolated(tx)} order by q.payment_id for update of q`
    const released = await endIsolation(
      tx,
      isolated.map(({ id }) => id),
      now,
    )
    unblocked.push({ ...row, released: released.length })
  }
  return unblocked
}

/**
 * Joins the payer of the queue's row `q`. Few payments are read, so this makes Postgres look up each payer by its key, regardless of its
 * estimates.
 */
export function payerOf(sql: Queryable, { chainId, token }: QueueScope, address = sql`q.payer`) {
  return sql`cross join lateral (
    select mined_failures from payer
    where payer.chain_id = ${chainId} and payer.token = ${token} and payer.address = ${address}
    offset 0
  ) payer`
}

/**
 * Reads the isolated payments that may be attempted. For a payer whose payments have failed on chain before, it reads only the oldest payment, and
 * nothing while another payment of the payer is in an isolated batch. For other payers, it reads all isolated payments.
 */
export async function readIsolated(
  sql: Queryable,
  group: QueueGroup,
  now: Date,
  limit: number,
): Promise<QueuedPayment[]> {
  return sql<QueuedPayment[]>`
    select ${queuedColumns(sql)} from (
      select q.*, payer.mined_failures, row_number() over (partition by q.payer order by q.accepted_at, q.payment_id) as place
      from queue q
      ${payerOf(sql, group)}
      where ${isIsolated(sql)} and q.group_id = ${group.id}
        and (q.next_at is null or q.next_at <= ${now})
        and payer.mined_failures < ${mostMinedFailures}
        and (payer.mined_failures = 0 or not exists (
          select from queue other join batch b on b.id = other.batch_id
          where other.payer = q.payer and other.group_id = q.group_id and b.lane = 'isolated'
        ))
    ) q
    join payment p on p.id = q.payment_id
    where q.mined_failures = 0 or q.place = 1
    -- Try the newest payments first, because they came last in their batches and so have been tried least.
    order by q.mined_failures, case when q.mined_failures = 0 then q.accepted_at end desc, q.accepted_at, q.payment_id
    limit ${limit}`
}

export type BlockedPayment = {
  paymentId: string
  /** The submission that it belongs to, which settles completely or not at all. */
  submission: Hex | null
}

/**
 * Reads the waiting payments of blocked payers, that is, payers with {@link mostMinedFailures} failed transactions, and the other payments
 * of their submissions.
 */
export async function readBlocked(
  sql: Queryable,
  scope: QueueScope,
  limit: number,
): Promise<BlockedPayment[]> {
  return sql<BlockedPayment[]>`
    select q.payment_id as "paymentId", q.submission
    from (
      select * from queue q where ${isIsolated(sql)}
      union all
      select * from queue q where q.submission is not null and not ${isIsolated(sql)} and ${isUnbatched(sql)}
    ) q
    ${payerOf(sql, scope)}
    where payer.mined_failures >= ${mostMinedFailures}
      and q.group_id in (select id from queue_group where chain_id = ${scope.chainId} and token = ${scope.token})
    limit ${limit}`
}
