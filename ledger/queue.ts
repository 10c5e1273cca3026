import type { Address } from 'viem'
import type { Queryable } from './database.ts'
import { halves } from './halves.ts'
import { settleMarginSeconds } from './settleMargin.ts'
import type { WaitingPayments } from './triggers.ts'

// Nothing here reads more of the queue than it returns, but for `findFullWallet`, which takes one step a provider wallet.
// Whether a payment is settled already is looked up for those that were chosen, by `readSettleable`.

/** USDC on one chain. */
export type QueueScope = { chainId: number; token: Address }

/** Payments that may share a batch: one token, one fee recipient as signed. */
export type QueueGroup = QueueScope & { feeRecipient: Address }

/** The condition of the partial indexes of migrations/0001_schema.sql: accepted, wanted, in no open batch. */
function isWanted(sql: Queryable) {
  return sql`concluded_at is null and failed_at is null and voided_at is null and not is_claimed`
}

function isWaiting(sql: Queryable, { chainId, token, feeRecipient }: QueueGroup) {
  return sql`chain_id = ${chainId} and token = ${token} and fee_recipient = ${feeRecipient}
    and ${isWanted(sql)} and next_attempt_at is null`
}

/** Failed before, and the time for another attempt has come. */
function isRetryDue(sql: Queryable, { chainId, token, feeRecipient }: QueueGroup, now: Date) {
  return sql`chain_id = ${chainId} and token = ${token} and fee_recipient = ${feeRecipient}
    and ${isWanted(sql)} and next_attempt_at is not null and next_attempt_at <= ${now} and attempts > 0`
}

const returnedAtOnce = 1_000

/** Lets payments that were only put off, without a failure of their own, wait in the queue again. */
export async function returnPutOff(sql: Queryable, { chainId, token }: QueueScope, now: Date): Promise<void> {
  await sql`
    update payment set next_attempt_at = null
    where id in (
      select id from payment
      where chain_id = ${chainId} and token = ${token} and ${isWanted(sql)}
        and next_attempt_at is not null and next_attempt_at <= ${now} and attempts = 0
      limit ${returnedAtOnce}
      for update skip locked
    )`
}

/** The fee recipients for whose payments something waits: as a rule one, the platform's wallet. */
export async function readGroups(sql: Queryable, scope: QueueScope): Promise<QueueGroup[]> {
  const { chainId, token } = scope
  // A loose index scan: from one fee recipient to the next greater one.
  const next = (after: ReturnType<typeof sql>) => sql`
    select min(first.fee_recipient) from (
      (select fee_recipient from payment
      where chain_id = ${chainId} and token = ${token} and ${isWanted(sql)} and next_attempt_at is null ${after}
      order by fee_recipient limit 1)
      union all
      (select fee_recipient from payment
      where chain_id = ${chainId} and token = ${token} and ${isWanted(sql)} and next_attempt_at is not null ${after}
      order by fee_recipient limit 1)
    ) first`
  const rows = await sql<{ feeRecipient: Address }[]>`
    with recursive recipient (address) as (
      (${next(sql``)})
      union all
      select (${next(sql`and fee_recipient > recipient.address`)}) from recipient where address is not null
    )
    select address as "feeRecipient" from recipient where address is not null`
  return rows.map(({ feeRecipient }) => ({ ...scope, feeRecipient }))
}

type Probes = {
  firstQueuedAt: Date | null
  firstValidBefore: bigint | null
  largestPayment: bigint | null
  retryDue: boolean
}

/** What one look-up each tells: the oldest, the greatest, the first to expire, a retry that is due. */
export async function readExtremes(
  sql: Queryable,
  group: QueueGroup,
  now: Date,
): Promise<Omit<WaitingPayments, 'paymentCount' | 'amount'> | null> {
  const waiting = isWaiting(sql, group)
  const [row] = await sql<[Probes]>`
    select
      (select accepted_at from payment where ${waiting} order by accepted_at limit 1) as "firstQueuedAt",
      (select valid_before from payment where ${waiting} order by valid_before limit 1) as "firstValidBefore",
      (select provider_amount + fee_amount from payment
        where ${waiting} and provider_amount + fee_amount >= 1000000
        order by provider_amount + fee_amount desc limit 1) as "largestPayment",
      exists (select from payment where ${isRetryDue(sql, group, now)}) as "retryDue"`
  if (row.firstQueuedAt === null && !row.retryDue) return null
  return {
    firstQueuedAt: row.firstQueuedAt ?? now,
    firstValidBefore: row.firstValidBefore ?? 2n ** 40n,
    largestPayment: row.largestPayment ?? 0n,
    retryDue: row.retryDue,
  }
}

/**
 * What waits for a provider wallet that has so much or so many; null if none has. Takes one step a wallet until the first
 * is found.
 */
export async function findFullWallet(
  sql: Queryable,
  group: QueueGroup,
  { amount, count }: { amount: bigint; count: number },
): Promise<Pick<WaitingPayments, 'paymentCount' | 'amount'> | null> {
  const waiting = isWaiting(sql, group)
  // More than `count` need not be looked at: they suffice by themselves. Postgres runs the recursion only as far as the
  // limit asks.
  const [row] = await sql<Pick<WaitingPayments, 'paymentCount' | 'amount'>[]>`
    with recursive wallet (payee) as (
      (select payee from payment where ${waiting} order by payee limit 1)
      union all
      select (select p.payee from payment p where ${waiting} and p.payee > wallet.payee order by p.payee limit 1)
      from wallet where wallet.payee is not null
    )
    select queue.count as "paymentCount", queue.amount
    from wallet
    cross join lateral (
      select count(*)::int as count, sum(provider_amount) as amount
      from (select provider_amount from payment p where ${waiting} and p.payee = wallet.payee limit ${count}) first
    ) queue
    where wallet.payee is not null and (queue.count >= ${count} or queue.amount >= ${amount})
    limit 1`
  return row ?? null
}

/** How large the next batch would be, for an estimate of its cost. */
export async function readNextBatchSize(
  sql: Queryable,
  group: QueueGroup,
  limit: number,
): Promise<{ payments: number; payees: number }> {
  const [row] = await sql<[{ payments: number; payees: number }]>`
    select count(*)::int as payments, count(distinct payee)::int as payees
    from (select payee from payment where ${isWaiting(sql, group)} order by accepted_at, id limit ${limit}) first`
  return row
}

/** One claim at a time on a chain: each sees what the one before it took. Held until the transaction ends. */
export async function lockClaims(sql: Queryable, chainId: number): Promise<void> {
  await sql`select pg_advisory_xact_lock(7402002, ${chainId})`
}

export type QueuedPayment = {
  id: string
  payee: Address
  isPair: boolean
  hasCode: boolean
  acceptedAt: Date
}

function queuedColumns(sql: Queryable) {
  return sql`id, payee, fee_amount > 0 as "isPair", payer_has_code as "hasCode", accepted_at as "acceptedAt"`
}

/** The greatest payments from `threshold` on: each is a batch by itself. */
export async function readGreatest(
  sql: Queryable,
  group: QueueGroup,
  threshold: bigint,
  limit: number,
): Promise<QueuedPayment[]> {
  return sql<QueuedPayment[]>`
    select ${queuedColumns(sql)} from payment
    where ${isWaiting(sql, group)} and provider_amount + fee_amount >= 1000000
      and provider_amount + fee_amount >= ${threshold}
    order by provider_amount + fee_amount desc
    limit ${limit}`
}

export type UrgentOptions = {
  now: Date
  /** Greater ones go by themselves. */
  below: bigint
  /** What expires within this time comes first. */
  expiryLeadMs: number
  limit: number
  /** Of the oldest, so many are left to others; then neither retries nor what expires is among them. Default 0. */
  skip?: number
}

/**
 * The most urgent payments of a group: what is about to expire, due retries, then the oldest. Retries are at most half of
 * them, so that payments that keep failing don't hold up the others.
 *
 * All are of payers with code, or none: the first one decides.
 */
export async function readMostUrgent(
  sql: Queryable,
  group: QueueGroup,
  { now, below, expiryLeadMs, limit, skip = 0 }: UrgentOptions,
): Promise<QueuedPayment[]> {
  const waiting = isWaiting(sql, group)
  const small = sql`provider_amount + fee_amount < ${below}`
  const readOldest = (condition: ReturnType<typeof sql>) => sql<QueuedPayment[]>`
    select ${queuedColumns(sql)} from payment
    where ${waiting} and ${small} ${condition} order by accepted_at, id limit ${limit} offset ${skip}`
  if (skip > 0) return readOldest(sql``)

  const expiring = await sql<QueuedPayment[]>`
    select ${queuedColumns(sql)} from payment
    where ${waiting} and ${small}
      and valid_before <= ${Math.floor((now.getTime() + expiryLeadMs) / 1000)}::bigint
    order by valid_before limit ${limit}`
  const retries = await sql<QueuedPayment[]>`
    select ${queuedColumns(sql)} from payment
    where ${isRetryDue(sql, group, now)} order by next_attempt_at limit ${Math.ceil(limit / 2)}`
  let oldest = await readOldest(sql``)
  const hasCode = (expiring[0] ?? retries[0] ?? oldest[0])?.hasCode
  if (hasCode === undefined) return []
  if (oldest.some((payment) => payment.hasCode !== hasCode))
    oldest = await readOldest(sql`and payer_has_code = ${hasCode}`)
  const chosen = new Map([...expiring, ...retries, ...oldest].map((payment) => [payment.id, payment]))
  return [...chosen.values()].filter((payment) => payment.hasCode === hasCode).slice(0, limit)
}

/** Locks chosen payments; those that meanwhile were claimed, voided or concluded are left out. */
export async function lockWanted(sql: Queryable, paymentIds: readonly string[]): Promise<Set<string>> {
  const rows = await sql<{ id: string }[]>`
    select id from payment where id in ${sql(paymentIds)} and ${isWanted(sql)} for update skip locked`
  return new Set(rows.map((row) => row.id))
}

/**
 * Those among chosen payments of which the chain, as far as it is indexed, leaves something to settle. A payment whose
 * provider half was cancelled, or its nonce used for something else, is none: its fee alone is never charged.
 */
export async function readSettleable(
  sql: Queryable,
  paymentIds: readonly string[],
  now: Date,
): Promise<Set<string>> {
  const rows = await sql<{ id: string }[]>`
    select h.payment_id as id
    from ${halves(sql)} h
    where h.payment_id in ${sql(paymentIds)}
    group by h.payment_id
    having bool_or(h.state = 'open' and h.valid_before > extract(epoch from ${now}::timestamptz) + ${settleMarginSeconds})
      and not bool_or(h.half = 0 and h.state in ('cancelled', 'foreign_use'))`
  return new Set(rows.map((row) => row.id))
}

/** Puts payments off without counting an attempt: something else has to be found out, or concluded, first. */
export async function deferPayments(
  sql: Queryable,
  paymentIds: readonly string[],
  until: Date,
): Promise<void> {
  if (paymentIds.length === 0) return
  await sql`
    update payment set next_attempt_at = ${until} where id in ${sql(paymentIds)} and concluded_at is null`
}

export async function setPayerHasCode(sql: Queryable, paymentId: string, hasCode: boolean): Promise<void> {
  await sql`update payment set payer_has_code = ${hasCode} where id = ${paymentId}`
}

/** A half of it is spent on chain and not indexed: the evidence loop is to find out by whom. */
export async function requestChainLookup(sql: Queryable, paymentId: string, now: Date): Promise<void> {
  await sql`update payment set lookup_requested_at = ${now} where id = ${paymentId} and lookup_requested_at is null`
}
