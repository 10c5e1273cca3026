import type { BatchShape, TabBatchShape, TabShape } from '@tollkeeper/chain/gas'
import type { Address } from 'viem'
import type { Queryable } from '../store/database.ts'
import {
  isAwaited,
  isDeferredUntil,
  isDue,
  isHeldBack,
  isInBatch,
  isIsolated,
  isRetryDue,
  isUnbatched,
  isWaiting,
} from './stages.ts'
import type { WaitingPayments } from './triggers.ts'

// Each query reads only the rows that it returns, except `findFullWallet`, which takes one step per provider wallet. Claims check whether a
// payment is already settled (claims.ts).

/** USDC on one chain. */
export type QueueScope = { chainId: number; token: Address }

/**
 * Payments that may share a batch, because they have the same token and the same signed fee recipient. `id`: key of the table queue_group.
 */
export type QueueGroup = QueueScope & { id: number; feeRecipient: Address }

/** Reads the groups of a network. Most networks have one group, for the platform's wallet. */
export async function readGroups(sql: Queryable, scope: QueueScope): Promise<QueueGroup[]> {
  const { chainId, token } = scope
  const rows = await sql<Pick<QueueGroup, 'id' | 'feeRecipient'>[]>`
    select id, fee_recipient as "feeRecipient" from queue_group
    where chain_id = ${chainId} and token = ${token} order by id`
  return rows.map((row) => ({ ...scope, ...row }))
}

/** An overview of a group's waiting payments, which decides what else a keeper reads from the queue. */
export type WaitingInGroup = {
  /** Values of the waiting payments that decide which trigger fires; null if no payment waits for a trigger. */
  extremes: Omit<WaitingPayments, 'paymentCount' | 'amount'> | null
  /** The kinds of payments that wait for a trigger, without high-value payments. All kinds if a retry is due, because its kind isn't read. */
  kinds: readonly QueuedKind[]
  /** Whether a caller of POST /settle or /submit waits for a payment. */
  isAwaited: boolean
  hasIsolated: boolean
  /** Whether the time of a deferred payment has come. */
  hasDeferred: boolean
}

/** Payments of the same kind may share a batch: tabs and payers with code go in separate batches. */
export type QueuedKind = { isTab: boolean; hasCode: boolean }

const queuedKinds: readonly QueuedKind[] = [
  { isTab: false, hasCode: false },
  { isTab: false, hasCode: true },
  { isTab: true, hasCode: false },
  { isTab: true, hasCode: true },
]

type Probes = Omit<WaitingInGroup, 'extremes' | 'kinds'> & {
  kinds: boolean[]
  firstQueuedAt: Date | null
  firstUrgentAt: bigint | null
  largestPayment: bigint | null
  retryDue: boolean
}

/**
 * Returns the condition that the triggers count the queue's row `q`: the seller's own middleware can't void the payment, or has had enough time to
 * void it.
 */
function isRipe(sql: Queryable, acceptedBy: Date) {
  return sql`(not q.may_be_voided or q.accepted_at <= ${acceptedBy})`
}

/**
 * Reads an overview of a group's waiting payments, each value by one index look-up: the oldest payment, the largest, the first to expire, a due
 * retry, and which further reads of the queue are necessary.
 *
 * @param highValue payments of at least this amount settle alone, so a due retry of such a payment doesn't make other payments due
 * @param acceptedBy a payment that may be voided and was accepted after this time can't be `firstQueuedAt`, but it counts for the other values
 */
export async function readWaiting(
  sql: Queryable,
  group: QueueGroup,
  { highValue, acceptedBy, now }: { highValue: bigint; acceptedBy: Date; now: Date },
): Promise<WaitingInGroup> {
  const waiting = sql`q.group_id = ${group.id} and ${isWaiting(sql)}`
  const retryDue = sql`q.group_id = ${group.id} and ${isRetryDue(sql, now)}`
  const amount = sql`q.provider_amount + q.fee_amount`
  const ofKind = ({ isTab, hasCode }: QueuedKind) =>
    sql`${waiting} and q.is_tab = ${isTab} and q.has_code = ${hasCode}`
  const listed = (texts: readonly ReturnType<typeof ofKind>[]) =>
    texts.reduce((list, text) => sql`${list}, ${text}`)
  const oldest = queuedKinds.map(
    (kind) => sql`
      (select q.accepted_at from queue q where ${ofKind(kind)} and ${isRipe(sql, acceptedBy)} order by q.accepted_at limit 1)`,
  )
  // Without this `order by`, the planner uses another index, and reads all waiting payments if none is of this kind.
  const hasKind = queuedKinds.map(
    (kind) => sql`
      (select true from queue q where ${ofKind(kind)} and ${amount} < ${highValue} order by q.accepted_at limit 1) is not null`,
  )
  const exists = (condition: ReturnType<typeof isDue>) =>
    sql`exists (select from queue q where q.group_id = ${group.id} and ${condition})`
  const [row] = await sql<[Probes]>`
    select
      least(${listed(oldest)}) as "firstQueuedAt",
      (select q.urgent_at from queue q
        where ${waiting} and ${isUnbatched(sql)}
        order by q.urgent_at limit 1) as "firstUrgentAt",
      greatest(
        (select ${amount} from queue q where ${waiting} and ${amount} >= 1000000 order by ${amount} desc limit 1),
        (select max(${amount}) from queue q where ${retryDue} and ${amount} >= ${highValue})
      ) as "largestPayment",
      exists (select from queue q where ${retryDue} and ${amount} < ${highValue}) as "retryDue",
      array[${listed(hasKind)}] as kinds,
      ${exists(isDue(sql))} as "isAwaited",
      ${exists(isIsolated(sql))} as "hasIsolated", ${exists(isDeferredUntil(sql, now))} as "hasDeferred"`
  const { firstQueuedAt, firstUrgentAt, largestPayment, retryDue: hasDueRetry, kinds, ...waits } = row
  const isEmpty = firstUrgentAt === null && largestPayment === null && !hasDueRetry
  return {
    ...waits,
    kinds: queuedKinds.filter((_, index) => hasDueRetry || kinds[index]),
    extremes: isEmpty
      ? null
      : {
          firstQueuedAt: firstQueuedAt ?? now,
          firstUrgentAt: firstUrgentAt ?? 2n ** 40n,
          largestPayment: largestPayment ?? 0n,
          retryDue: hasDueRetry,
        },
  }
}

/**
 * Finds a provider wallet whose waiting payments reach `amount` in total or `count` in number. Returns their total and number; null if there is no
 * such wallet. It takes one step per wallet until it finds one.
 *
 * @param below Payments of this amount or more don't count, because they settle alone.
 * @param acceptedBy Payments that were accepted later and may be voided don't count either.
 */
export async function findFullWallet(
  sql: Queryable,
  group: QueueGroup,
  { amount, count }: { amount: bigint; count: number },
  { below, acceptedBy }: { below: bigint; acceptedBy: Date },
): Promise<Pick<WaitingPayments, 'paymentCount' | 'amount'> | null> {
  const waiting = sql`q.group_id = ${group.id} and ${isWaiting(sql)} and q.provider_amount + q.fee_amount < ${below}`
  // `count` payments are enough, so no more are read. Postgres runs the recursion only until the limit is reached.
  const [row] = await sql<Pick<WaitingPayments, 'paymentCount' | 'amount'>[]>`
    with recursive wallet (payee) as (
      (select q.payee from queue q where ${waiting} order by q.payee limit 1)
      union all
      select (select q.payee from queue q where ${waiting} and q.payee > wallet.payee order by q.payee limit 1)
      from wallet where wallet.payee is not null
    )
    select queue.count as "paymentCount", queue.amount
    from wallet
    cross join lateral (
      select count(*)::int as count, sum(provider_amount) as amount
      from (select q.provider_amount from queue q where ${waiting} and q.payee = wallet.payee and ${isRipe(sql, acceptedBy)} limit ${count}) first
    ) queue
    where wallet.payee is not null and (queue.count >= ${count} or queue.amount >= ${amount})
    limit 1`
  return row ?? null
}

/** Reads the size of the next batch, for an estimate of its cost. */
export async function readNextBatchSize(
  sql: Queryable,
  group: QueueGroup,
  { limit, acceptedBy }: { limit: number; acceptedBy: Date },
): Promise<NextBatchSize> {
  const first = (isTab: boolean) => sql`(
    select q.payment_id from queue q
    where q.group_id = ${group.id} and ${isWaiting(sql)} and q.is_tab = ${isTab} and not q.has_code and ${isRipe(sql, acceptedBy)}
    order by q.accepted_at, q.payment_id limit ${limit}
  )`
  const [row] = await sql<[NextBatchSize]>`
    select payments.*, tabs.*
    from (
      select count(*) filter (where is_pair)::int as pairs, count(*) filter (where not is_pair)::int as singles,
        count(distinct recipient)::int as payees
      from (
        select coalesce(p.splitter, p.payee) as recipient, p.fee_amount > 0 and p.splitter is null as is_pair
        from ${first(false)} first join payment p on p.id = first.payment_id
      ) next
    ) payments
    cross join (
      select count(distinct l.payment_id)::int as tabs, count(*)::int as lines,
        count(distinct (l.payee, l.provider_share, l.platform_share))::int as splits
      from ${first(true)} first join tab_line l on l.payment_id = first.payment_id
    ) tabs`
  return row
}

/** A payment that a caller of POST /settle waits for, and since when. */
export type AwaitedPayment = QueuedPayment & { dueAt: Date }

/** Returns the caller who waits for the queue's row `q`: the provider whose key was sent or, without a key, the paid wallet. */
export function callerOf(sql: Queryable) {
  return sql`coalesce(q.provider_id, q.payee)`
}

const mostWithoutGrant = 64

/**
 * Reads a group's awaited payments, without submissions. Callers take turns, and each caller's payments come in order of arrival. Because
 * keys and wallets are free, all callers that draw on the common allowance count as one caller next to those with a grant, and take turns
 * among themselves. So a caller with a thousand payments delays no one else. It reads `limit` rows per caller, by one index.
 *
 * A caller without a grant has at most {@link mostWithoutGrant} payments in batches that aren't mined yet, because later callers wait until
 * such a batch has been simulated and mined. The limit applies to all wallets together: otherwise a caller's backlog would fill the batches
 * of every wallet, and leave none for the others.
 */
export async function readAwaited(
  sql: Queryable,
  { id }: QueueGroup,
  { hasCode, limit }: { hasCode: boolean; limit: number },
): Promise<AwaitedPayment[]> {
  const due = sql`q.group_id = ${id} and ${isDue(sql)} and q.has_code = ${hasCode}`
  const caller = callerOf(sql)
  const drawsOnCommon = sql`coalesce(q.gas_drawer in ('common', 'common:test'), false)`
  return sql<AwaitedPayment[]>`
    with recursive caller (id) as (
      (select ${caller} from queue q where ${due} order by 1 limit 1)
      union all
      select (select ${caller} from queue q where ${due} and ${caller} > caller.id order by 1 limit 1)
      from caller where caller.id is not null
    ), next as (
      select own.*, busy.count as in_flight from caller cross join lateral (
        select count(*) from queue q join batch b on b.id = q.batch_id and b.state in ('claimed', 'broadcast', 'reorged')
        where ${caller} = caller.id and ${isAwaited(sql)} and ${isInBatch(sql)}
      ) busy cross join lateral (
        select q.*, row_number() over (order by q.due_at) as turn from queue q
        where ${due} and ${caller} = caller.id and q.submission is null
        order by q.due_at limit ${limit}
      ) own
    ), placed as (
      select q.*, row_number() over (
        partition by case when ${drawsOnCommon} then 'common' else ${caller} end order by turn, due_at
      ) as place
      from next q where q.turn + q.in_flight <= ${mostWithoutGrant} or not ${drawsOnCommon}
    )
    select ${queuedColumns(sql)}, q.due_at as "dueAt" from placed q join payment p on p.id = q.payment_id
    order by q.place, q.due_at limit ${limit}`
}

/**
 * Reads the payments of the submission that has waited longest on a network; an empty list if there is none. Submissions that wait for cheaper gas
 * are left out.
 */
export async function readSubmission(
  sql: Queryable,
  { chainId, token }: QueueScope,
): Promise<(QueuedPayment & { feeRecipient: Address })[]> {
  return sql<(QueuedPayment & { feeRecipient: Address })[]>`
    select ${queuedColumns(sql)}, p.fee_recipient as "feeRecipient"
    from queue q join payment p on p.id = q.payment_id
    where q.submission = (
      select q.submission from queue q
      where q.submission is not null and ${isUnbatched(sql)} and not ${isHeldBack(sql)}
        and q.group_id in (select id from queue_group where chain_id = ${chainId} and token = ${token})
      order by q.due_at limit 1
    )
    order by q.accepted_at, q.payment_id`
}

/** Reads the oldest payments that wait because nothing pays for their gas, except payments that a caller waits for. */
export async function readHeldBack(
  sql: Queryable,
  { chainId, token }: QueueScope,
  limit: number,
): Promise<{ id: string; feeRecipient: Address }[]> {
  return sql<{ id: string; feeRecipient: Address }[]>`
    select q.payment_id as id, g.fee_recipient as "feeRecipient"
    from queue q join queue_group g on g.id = q.group_id and g.chain_id = ${chainId} and g.token = ${token}
    where ${isHeldBack(sql)} and not ${isAwaited(sql)}
    order by q.accepted_at
    limit ${limit}`
}

/**
 * The size of the next batch: how many payments have two authorizations, how many have one, how many recipients there are besides the platform's
 * wallet, and how many tabs.
 */
export type NextBatchSize = Pick<BatchShape, 'pairs' | 'singles' | 'payees'> & Omit<TabBatchShape, 'hasCode'>

/** The properties of a tab that determine with which tabs it can share a batch and how much space it takes. */
export type QueuedTab = TabShape & { rewardShare: number }

export type QueuedPayment = {
  id: string
  /** The address that receives the payment: the provider's wallet, or a splitter. */
  recipient: Address
  isPair: boolean
  /** A refund can share a batch with payments of one authorization and with payments of two. */
  isRefund: boolean
  /** The tab that the payment settles; null if the payment isn't a tab's. */
  tab: QueuedTab | null
  hasCode: boolean
  acceptedAt: Date
} & GasMeans

/** The amounts that can pay for a payment's gas, in USDC base units. */
export type GasMeans = {
  /** The platform's part of the payment. */
  fee: bigint
  /** Whether the payment was bought at the gateway. If so, the operator's budget may pay the gas that the payment's fee doesn't cover. */
  isSold: boolean
  /** The unspent part of the payment's gas reservation. */
  gasLeft: bigint
  /** Unix seconds from which the budget pays the gas that the payment's fee doesn't cover, at any gas price. */
  urgentAt: bigint
}

/** Returns the columns of {@link GasMeans} for the queue's row `q` and its payment `p`. */
export function gasMeans(sql: Queryable) {
  return sql`${feeOf(sql)} as fee, p.source in ('gateway', 'tab') as "isSold", q.gas_reserved - q.gas_spent as "gasLeft",
    q.urgent_at as "urgentAt"`
}

/**
 * Returns the platform's part of the queue's row `q` and its payment `p`; for a tab, without the settler's reward.
 *
 * A submission may have no separate fee. If it pays the platform, its whole amount is the fee. If it pays a splitter, the platform's share is the
 * fee.
 */
export function feeOf(sql: Queryable) {
  return sql`case
    when q.is_tab then (
      select q.fee_amount - trunc(q.fee_amount * t.reward_share / 10000) from tab_payment t where t.payment_id = q.payment_id
    )
    when q.fee_amount > 0 or p.source <> 'submission' then q.fee_amount
    when p.payee = p.fee_recipient then q.provider_amount
    else coalesce((
      select trunc(q.provider_amount * s.platform_share / (s.provider_share + s.platform_share)) from splitter s
      where s.chain_id = p.chain_id and s.token = p.token and s.address = p.payee and s.platform = p.fee_recipient
    ), 0)
  end`
}

/** Returns the columns of {@link QueuedPayment} for the queue's row `q` and its payment `p`. */
export function queuedColumns(sql: Queryable) {
  return sql`q.payment_id as id, coalesce(p.splitter, p.payee) as recipient,
    p.fee_amount > 0 and p.splitter is null as "isPair", p.source = 'refund' as "isRefund", ${tabOf(sql)} as tab, q.has_code as "hasCode",
    q.accepted_at as "acceptedAt", ${gasMeans(sql)}`
}

/** Returns the {@link QueuedTab} of the queue's row `q`. */
function tabOf(sql: Queryable) {
  return sql`case when q.is_tab then (
    select json_build_object('rewardShare', t.reward_share, 'lines', count(*),
      'splits', json_agg(distinct concat(l.payee, ':', l.provider_share, ':', l.platform_share)))
    from tab_payment t join tab_line l on l.payment_id = t.payment_id
    where t.payment_id = q.payment_id
    group by t.payment_id
  ) end`
}

/** Reads the largest payments of at least `threshold`, including due retries. Each is a separate batch. */
export async function readGreatest(
  sql: Queryable,
  group: QueueGroup,
  { threshold, limit, now }: { threshold: bigint; limit: number; now: Date },
): Promise<QueuedPayment[]> {
  const amount = sql`q.provider_amount + q.fee_amount`
  const greatest = (condition: ReturnType<typeof isWaiting>) => sql`
    (select q.* from queue q
      where q.group_id = ${group.id} and ${condition} and ${amount} >= 1000000 and ${amount} >= ${threshold}
      order by ${amount} desc
      limit ${limit})`
  return sql<QueuedPayment[]>`
    select ${queuedColumns(sql)}
    from (${greatest(isWaiting(sql))} union all ${greatest(isRetryDue(sql, now))}) q
    join payment p on p.id = q.payment_id
    order by ${amount} desc
    limit ${limit}`
}

export type UrgentOptions = QueuedKind & {
  now: Date
  /** Payments of this amount or more go in separate batches. */
  below: bigint
  /** Payments that were accepted later and may be voided are read only if they are urgent. Urgent payments come first. */
  acceptedBy: Date
  limit: number
  /** Number of the oldest payments to skip. If it isn't 0, retries and urgent payments are left out as well. Default 0. */
  skip?: number
}

/**
 * Reads a group's most urgent payments: those about to expire, due retries, then the oldest. At most half of them are retries, so that
 * payments that keep failing don't delay the others.
 */
export async function readMostUrgent(
  sql: Queryable,
  group: QueueGroup,
  { now, acceptedBy, isTab, hasCode, below, limit, skip = 0 }: UrgentOptions,
): Promise<QueuedPayment[]> {
  const alike = sql`q.group_id = ${group.id} and q.is_tab = ${isTab} and q.has_code = ${hasCode}
    and q.provider_amount + q.fee_amount < ${below}`
  const waiting = sql`${isWaiting(sql)} and ${alike}`
  const first = skip === 0
  // One statement, in which each part uses its own index.
  return sql<QueuedPayment[]>`
    select ${queuedColumns(sql)} from (
      select distinct on (payment_id) * from (
        (select 0 as urgency, q.urgent_at as place, q.* from queue q
          where ${waiting} and ${isUnbatched(sql)}
            and ${first} and q.urgent_at <= ${Math.floor(now.getTime() / 1000)}::bigint
          order by q.urgent_at limit ${limit})
        union all
        (select 1, extract(epoch from q.next_at)::bigint, q.* from queue q
          where ${isRetryDue(sql, now)} and ${alike} and ${first}
          order by q.next_at limit ${Math.ceil(limit / 2)})
        union all
        (select 2, (extract(epoch from q.accepted_at) * 1000)::bigint, q.* from queue q
          where ${waiting} and ${isRipe(sql, acceptedBy)}
          order by q.accepted_at, q.payment_id limit ${limit} offset ${skip})
      ) parts
      order by payment_id, urgency
    ) q
    join payment p on p.id = q.payment_id
    order by q.urgency, q.place, q.payment_id
    limit ${limit}`
}

export async function setHasCode(
  sql: Queryable,
  paymentIds: readonly string[],
  hasCode: boolean,
): Promise<void> {
  if (paymentIds.length === 0) return
  await sql`update queue set has_code = ${hasCode} where payment_id = any(${[...paymentIds]}::text[])`
}
