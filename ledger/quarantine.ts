import type { Address } from 'viem'
import type { Queryable } from './database.ts'
import { isWanted, type QueuedPayment, type QueueGroup, type QueueScope, queuedColumns } from './queue.ts'

// A payer whose payment passes the simulation and fails when it is mined may have lied to the simulation. What it costs is
// bounded by what we count, not by what we detect: its payments go apart, one at a time, and after the second such failure
// not at all.

/** So many transactions of ours may fail for one payer; then whatever else waits of it is failed unsent. */
export const mostMinedFailures = 2

/** How many payers of a network are not tried any more. */
export async function countGivenUpPayers(sql: Queryable, chainId: number): Promise<number> {
  const [row] = await sql<[{ count: number }]>`
    select count(*)::int as count from payer where chain_id = ${chainId} and mined_failures >= ${mostMinedFailures}`
  return row.count
}

/** Counts a transaction in which these payers' payments failed, and quarantines what else waits of them. */
export async function quarantinePayers(
  sql: Queryable,
  { chainId, token }: QueueScope,
  payers: readonly Address[],
): Promise<void> {
  if (payers.length === 0) return
  // Of a transfer that came through POST /submit we may never have heard of the payer.
  await sql`
    with counted as (
      insert into payer as p (chain_id, token, address, mined_failures)
      select ${chainId}, ${token}, address, 1 from unnest(${[...new Set(payers)].toSorted()}::text[]) as given (address)
      on conflict (chain_id, token, address) do update set mined_failures = p.mined_failures + 1
      returning address
    )
    update payment set quarantined = true
    where chain_id = ${chainId} and token = ${token} and payer in (select address from counted)
      and concluded_at is null and failed_at is null and not quarantined`
}

/** Payments of a batch that may not have been tried: they are settled next with the gas of each budgeted in full. */
export async function quarantinePayments(sql: Queryable, paymentIds: readonly string[]): Promise<void> {
  if (paymentIds.length === 0) return
  await sql`update payment set quarantined = true where id in ${sql(paymentIds)} and concluded_at is null`
}

/** Quarantined payments are few and payers many: looked up one by one, whatever Postgres thinks of either's number. */
function payerOf(sql: Queryable, payment: string) {
  const p = sql(payment)
  return sql`cross join lateral (
    select mined_failures from payer
    where payer.chain_id = ${p}.chain_id and payer.token = ${p}.token and payer.address = ${p}.payer
    offset 0
  ) payer`
}

/**
 * Quarantined payments that may be tried: one of each payer that failed on chain before, while none of its is under way,
 * and whatever of others may not have been tried.
 */
export async function readQuarantined(
  sql: Queryable,
  { chainId, token, feeRecipient }: QueueGroup,
  now: Date,
  limit: number,
): Promise<QueuedPayment[]> {
  return sql<QueuedPayment[]>`
    select ${queuedColumns(sql)} from (
      select q.*, payer.mined_failures,
        row_number() over (partition by q.payer order by q.accepted_at, q.id) as place
      from payment q
      ${payerOf(sql, 'q')}
      where q.chain_id = ${chainId} and q.token = ${token} and q.fee_recipient = ${feeRecipient} and q.quarantined
        and ${isWanted(sql)}
        and (q.next_attempt_at is null or q.next_attempt_at <= ${now})
        and payer.mined_failures < ${mostMinedFailures}
        and (payer.mined_failures = 0 or not exists (
          select from payment other
          where other.chain_id = q.chain_id and other.token = q.token and other.payer = q.payer and other.is_claimed
            and other.quarantined and other.concluded_at is null
        ))
    ) waiting
    where mined_failures = 0 or place = 1
    -- What was last in its batch was tried least.
    order by mined_failures, case when mined_failures = 0 then accepted_at end desc, accepted_at, id
    limit ${limit}`
}

/** What waits of payers for whom {@link mostMinedFailures} transactions failed. */
export async function readCondemned(
  sql: Queryable,
  { chainId, token }: QueueScope,
  limit: number,
): Promise<{ paymentId: string; payer: Address }[]> {
  return sql<{ paymentId: string; payer: Address }[]>`
    select p.id as "paymentId", p.payer
    from payment p
    ${payerOf(sql, 'p')}
    where p.chain_id = ${chainId} and p.token = ${token} and p.quarantined and ${isWanted(sql)}
      and payer.mined_failures >= ${mostMinedFailures}
    limit ${limit}`
}
