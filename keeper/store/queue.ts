import type { Address } from 'viem'
import type { WalletQueue } from '../domain/triggers.ts'
import type { Queryable } from './database.ts'
import { halves } from './halves.ts'

/** Payments that may share a batch: one token, one fee recipient as signed. */
export type QueueGroup = {
  feeRecipient: Address
  wallets: (WalletQueue & { payee: Address })[]
  paymentCount: number
}

export type QueueScope = { chainId: number; token: Address; indexerSchema: string }

/** A transaction has to be signed, sent and mined before `validBefore`. */
const settleMarginSeconds = 15

/**
 * What could be claimed now, one row a payment: accepted, wanted, in no open batch, and a half of it is open. A payment
 * whose provider half was cancelled or diverted is none: its fee alone is never charged.
 */
function claimable(sql: Queryable, { chainId, token, indexerSchema }: QueueScope, now: Date) {
  return sql`(
    select p.id, p.fee_recipient, p.payee, p.payer_has_code, p.provider_amount, p.fee_amount, p.accepted_at,
      p.attempts, open.valid_before,
      least(p.accepted_at + interval '1 hour', to_timestamp(open.valid_before) - interval '5 minutes') as deadline
    from payment p
    cross join lateral (
      select min(h.valid_before) as valid_before
      from ${halves(sql, indexerSchema)} h
      where h.payment_id = p.id
      having bool_or(h.state = 'open' and h.valid_before > extract(epoch from ${now}::timestamptz) + ${settleMarginSeconds})
        and not bool_or(h.half = 0 and h.state in ('cancelled', 'diverted'))
    ) open
    where p.chain_id = ${chainId} and p.token = ${token}
      and p.concluded_at is null and p.failed_at is null and p.voided_at is null
      and (p.next_attempt_at is null or p.next_attempt_at <= ${now})
      and not exists (select from batch_item i where i.payment_id = p.id and i.active)
  )`
}

/** What waits, by fee recipient and provider wallet. */
export async function readQueue(sql: Queryable, scope: QueueScope, now: Date): Promise<QueueGroup[]> {
  const rows = await sql<(WalletQueue & { payee: Address; feeRecipient: Address })[]>`
    select fee_recipient as "feeRecipient", payee, count(*)::int as "paymentCount",
      sum(provider_amount) as amount, max(provider_amount + fee_amount) as "largestPayment",
      min(accepted_at) as "firstQueuedAt", min(valid_before) as "firstValidBefore",
      bool_or(attempts > 0) as "retryDue"
    from ${claimable(sql, scope, now)} waiting
    group by fee_recipient, payee
    order by fee_recipient, payee`
  const groups = new Map<Address, QueueGroup>()
  for (const { feeRecipient, ...wallet } of rows) {
    const group = groups.get(feeRecipient) ?? { feeRecipient, wallets: [], paymentCount: 0 }
    group.wallets.push(wallet)
    group.paymentCount += wallet.paymentCount
    groups.set(feeRecipient, group)
  }
  return [...groups.values()]
}

/** One claim at a time on a chain: each sees what the one before it took. Held until the transaction ends. */
export async function lockClaims(sql: Queryable, chainId: number): Promise<void> {
  await sql`select pg_advisory_xact_lock(7402002, ${chainId})`
}

export type Claimable = {
  id: string
  payee: Address
  isPair: boolean
  hasCode: boolean
}

/**
 * Locks the most urgent payments of a group, of those whose two halves together are worth `from` or more, or less than
 * `below`. All are of payers with code, or none: the first one decides.
 */
export async function lockMostUrgent(
  sql: Queryable,
  scope: QueueScope & { feeRecipient: Address },
  now: Date,
  choice: { limit: number } & ({ from: bigint } | { below: bigint }),
): Promise<Claimable[]> {
  const worth =
    'from' in choice
      ? sql`c.provider_amount + c.fee_amount >= ${choice.from}`
      : sql`c.provider_amount + c.fee_amount < ${choice.below}`
  const rows = await sql<Claimable[]>`
    select p.id, p.payee, p.fee_amount > 0 as "isPair", p.payer_has_code as "hasCode"
    from payment p
    join ${claimable(sql, scope, now)} c on c.id = p.id
    where c.fee_recipient = ${scope.feeRecipient} and ${worth}
    order by c.deadline, p.id
    limit ${choice.limit}
    for update of p skip locked`
  const hasCode = rows[0]?.hasCode
  return rows.filter((row) => row.hasCode === hasCode)
}

/** Puts a payment off without counting an attempt: something else has to be found out first. */
export async function deferPayment(sql: Queryable, paymentId: string, until: Date): Promise<void> {
  await sql`update payment set next_attempt_at = ${until} where id = ${paymentId} and concluded_at is null`
}

export async function setPayerHasCode(sql: Queryable, paymentId: string, hasCode: boolean): Promise<void> {
  await sql`update payment set payer_has_code = ${hasCode} where id = ${paymentId}`
}

/** A half of it is spent on chain and not indexed: the evidence loop is to find out by whom. */
export async function seekEvidence(sql: Queryable, paymentId: string, now: Date): Promise<void> {
  await sql`update payment set sought_at = coalesce(sought_at, ${now}) where id = ${paymentId}`
}
