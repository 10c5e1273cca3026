import type { Address } from 'viem'
import type { BatchShape } from '#chain/gas'
import type { Queryable } from './database.ts'
import type { WaitingPayments } from './triggers.ts'

// Nothing here reads more of the queue than it returns, but for `findFullWallet`, which takes one step a provider wallet.
// Whether a payment is settled already is looked up for those that were chosen, when they are claimed (claims.ts).

/** USDC on one chain. */
export type QueueScope = { chainId: number; token: Address }

/** Payments that may share a batch: one token, one fee recipient as signed. */
export type QueueGroup = QueueScope & { feeRecipient: Address }

/** The condition of the partial indexes of migrations/0001_schema.sql: accepted, wanted, in no open batch. */
export function isWanted(sql: Queryable) {
  return sql`concluded_at is null and failed_at is null and voided_at is null and spent_block is null and not is_claimed`
}

function isWaiting(sql: Queryable, { chainId, token, feeRecipient }: QueueGroup) {
  return sql`chain_id = ${chainId} and token = ${token} and fee_recipient = ${feeRecipient}
    and ${isWanted(sql)} and next_attempt_at is null and not quarantined and due_at is null`
}

/** Failed before, and the time for another attempt has come. */
function isRetryDue(sql: Queryable, { chainId, token, feeRecipient }: QueueGroup, now: Date) {
  return sql`chain_id = ${chainId} and token = ${token} and fee_recipient = ${feeRecipient}
    and ${isWanted(sql)} and next_attempt_at is not null and next_attempt_at <= ${now} and attempts > 0
    and not quarantined`
}

const returnedAtOnce = 1_000

/** Lets payments that were only deferred, without a failure of their own, wait in the queue again. */
export async function returnDeferred(
  sql: Queryable,
  { chainId, token }: QueueScope,
  now: Date,
): Promise<void> {
  await sql`
    update payment set next_attempt_at = null
    where id in (
      select id from payment
      where chain_id = ${chainId} and token = ${token} and ${isWanted(sql)}
        and next_attempt_at is not null and next_attempt_at <= ${now} and attempts = 0 and not quarantined
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
      where chain_id = ${chainId} and token = ${token} and ${isWanted(sql)} and next_attempt_at is null
        and not quarantined ${after}
      order by fee_recipient limit 1)
      union all
      (select fee_recipient from payment
      where chain_id = ${chainId} and token = ${token} and ${isWanted(sql)} and next_attempt_at is not null ${after}
      order by fee_recipient limit 1)
      union all
      (select fee_recipient from payment
      where chain_id = ${chainId} and token = ${token} and ${isWanted(sql)} and quarantined ${after}
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

/**
 * What one look-up each tells: the oldest, the greatest, the first to expire, a retry that is due.
 *
 * @param highValue from which on payments travel alone, retries as well: none of theirs makes the others due
 */
export async function readExtremes(
  sql: Queryable,
  group: QueueGroup,
  highValue: bigint,
  now: Date,
): Promise<Omit<WaitingPayments, 'paymentCount' | 'amount'> | null> {
  const waiting = isWaiting(sql, group)
  const [row] = await sql<[Probes]>`
    select
      (select accepted_at from payment where ${waiting} order by accepted_at limit 1) as "firstQueuedAt",
      (select valid_before from payment where ${waiting} order by valid_before limit 1) as "firstValidBefore",
      greatest(
        (select provider_amount + fee_amount from payment
          where ${waiting} and provider_amount + fee_amount >= 1000000
          order by provider_amount + fee_amount desc limit 1),
        (select max(provider_amount + fee_amount) from payment
          where ${isRetryDue(sql, group, now)} and provider_amount + fee_amount >= ${highValue})
      ) as "largestPayment",
      exists (
        select from payment where ${isRetryDue(sql, group, now)} and provider_amount + fee_amount < ${highValue}
      ) as "retryDue"`
  if (row.firstQueuedAt === null && row.largestPayment === null && !row.retryDue) return null
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
 *
 * @param below Greater payments don't count: they travel alone.
 */
export async function findFullWallet(
  sql: Queryable,
  group: QueueGroup,
  { amount, count }: { amount: bigint; count: number },
  below: bigint,
): Promise<Pick<WaitingPayments, 'paymentCount' | 'amount'> | null> {
  const waiting = sql`${isWaiting(sql, group)} and provider_amount + fee_amount < ${below}`
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
): Promise<NextBatchSize> {
  const [row] = await sql<[NextBatchSize]>`
    select count(*) filter (where is_pair)::int as pairs, count(*) filter (where not is_pair)::int as singles,
      count(distinct recipient)::int as payees
    from (
      select coalesce(splitter, payee) as recipient, fee_amount > 0 and splitter is null as is_pair from payment
      where ${isWaiting(sql, group)} order by accepted_at, id limit ${limit}
    ) first`
  return row
}

/** What callers of POST /settle wait for, and since when. */
export type AwaitedPayment = QueuedPayment & { dueAt: Date }

/** The awaited payments of a group that run out first. */
export async function readAwaited(
  sql: Queryable,
  { chainId, token, feeRecipient }: QueueGroup,
  { hasCode, limit }: { hasCode: boolean; limit: number },
): Promise<AwaitedPayment[]> {
  return sql<AwaitedPayment[]>`
    select ${queuedColumns(sql)}, due_at as "dueAt" from payment
    where chain_id = ${chainId} and token = ${token} and fee_recipient = ${feeRecipient}
      and ${isWanted(sql)} and next_attempt_at is null and not quarantined
      and due_at is not null and payer_has_code = ${hasCode}
    order by valid_before, due_at
    limit ${limit}`
}

/** Payments of two authorizations, of one, and their distinct recipients but the platform's wallet. */
export type NextBatchSize = Pick<BatchShape, 'pairs' | 'singles' | 'payees'>

export type QueuedPayment = {
  id: string
  /** The provider's wallet, or the splitter. */
  recipient: Address
  isPair: boolean
  /** Goes along with payments of either kind. */
  isRefund: boolean
  hasCode: boolean
  acceptedAt: Date
  /** Unix seconds. */
  validBefore: bigint
}

export function queuedColumns(sql: Queryable) {
  return sql`id, coalesce(splitter, payee) as recipient, fee_amount > 0 and splitter is null as "isPair",
    source = 'refund' as "isRefund", payer_has_code as "hasCode", accepted_at as "acceptedAt",
    valid_before as "validBefore"`
}

/** The greatest payments from `threshold` on, retries that are due among them: each is a batch by itself. */
export async function readGreatest(
  sql: Queryable,
  group: QueueGroup,
  { threshold, limit, now }: { threshold: bigint; limit: number; now: Date },
): Promise<QueuedPayment[]> {
  const greatest = (condition: ReturnType<typeof isWaiting>) => sql`
    (select id, payee, splitter, source, provider_amount, fee_amount, payer_has_code, accepted_at, valid_before
      from payment
      where ${condition} and provider_amount + fee_amount >= 1000000 and provider_amount + fee_amount >= ${threshold}
      order by provider_amount + fee_amount desc
      limit ${limit})`
  return sql<QueuedPayment[]>`
    select ${queuedColumns(sql)}
    from (${greatest(isWaiting(sql, group))} union all ${greatest(isRetryDue(sql, group, now))}) payment
    order by provider_amount + fee_amount desc
    limit ${limit}`
}

export type UrgentOptions = {
  now: Date
  /** Payers with code go by themselves. */
  hasCode: boolean
  /** Greater ones go by themselves. */
  below: bigint
  /** What expires within this time comes first. */
  expiryLeadMs: number
  limit: number
  /** Of the oldest, so many are left to others; then neither retries nor what expires is among them. Default 0. */
  skip?: number
  /** Nothing but what expires within the lead. */
  onlyExpiring?: boolean
}

/**
 * The most urgent payments of a group: what is about to expire, due retries, then the oldest. Retries are at most half of
 * them, so that payments that keep failing don't hold up the others.
 */
export async function readMostUrgent(
  sql: Queryable,
  group: QueueGroup,
  { now, hasCode, below, expiryLeadMs, limit, skip = 0, onlyExpiring = false }: UrgentOptions,
): Promise<QueuedPayment[]> {
  const alike = sql`payer_has_code = ${hasCode} and provider_amount + fee_amount < ${below}`
  const waiting = sql`${isWaiting(sql, group)} and ${alike}`
  const expiresBy = Math.floor((now.getTime() + expiryLeadMs) / 1000)
  const first = skip === 0
  const columns = sql`id, payee, splitter, source, fee_amount, payer_has_code, accepted_at, valid_before`
  // One statement, and each part by its own index.
  return sql<QueuedPayment[]>`
    select ${queuedColumns(sql)} from (
      select distinct on (id) * from (
        (select 0 as urgency, valid_before as place, ${columns} from payment
          where ${waiting} and ${first} and valid_before <= ${expiresBy}::bigint
          order by valid_before limit ${limit})
        union all
        (select 1, extract(epoch from next_attempt_at)::bigint, ${columns} from payment
          where ${isRetryDue(sql, group, now)} and ${alike} and ${first} and ${!onlyExpiring}
          order by next_attempt_at limit ${Math.ceil(limit / 2)})
        union all
        (select 2, (extract(epoch from accepted_at) * 1000)::bigint, ${columns} from payment
          where ${waiting} and ${!onlyExpiring}
          order by accepted_at, id limit ${limit} offset ${skip})
      ) parts
      order by id, urgency
    ) chosen
    order by urgency, place, id
    limit ${limit}`
}

/** Defers payments without counting an attempt: something else has to be found out, or concluded, first. */
export async function deferPayments(
  sql: Queryable,
  paymentIds: readonly string[],
  until: Date,
): Promise<void> {
  if (paymentIds.length === 0) return
  await sql`
    update payment set next_attempt_at = ${until} where id in ${sql(paymentIds)} and concluded_at is null`
}

export async function setPayerHasCode(
  sql: Queryable,
  paymentIds: readonly string[],
  hasCode: boolean,
): Promise<void> {
  if (paymentIds.length === 0) return
  await sql`update payment set payer_has_code = ${hasCode} where id in ${sql(paymentIds)}`
}

/** A half of it is spent on chain and not indexed: the evidence loop is to find out by whom. */
export async function requestChainLookup(sql: Queryable, paymentId: string, now: Date): Promise<void> {
  await sql`update payment set lookup_requested_at = ${now} where id = ${paymentId} and lookup_requested_at is null`
}
