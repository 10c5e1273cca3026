import type { Address } from 'viem'
import type { BatchShape, TabBatchShape, TabShape } from '#chain/gas'
import type { Queryable } from '../store/database.ts'
import { isAwaited, isDue, isHeldBack, isLoose, isRetryDue, isWaiting } from './stages.ts'
import type { WaitingPayments } from './triggers.ts'

// Nothing here reads more of the queue than it returns, but for `findFullWallet`, which takes one step a provider wallet.
// Whether a payment is settled already is looked up for those that were chosen, when they are claimed (claims.ts).

/** USDC on one chain. */
export type QueueScope = { chainId: number; token: Address }

/** Payments that may share a batch: one token, one fee recipient as signed. `id`: in the table queue_group. */
export type QueueGroup = QueueScope & { id: number; feeRecipient: Address }

/** The groups of a network: as a rule one, of the platform's wallet. */
export async function readGroups(sql: Queryable, scope: QueueScope): Promise<QueueGroup[]> {
  const { chainId, token } = scope
  const rows = await sql<Pick<QueueGroup, 'id' | 'feeRecipient'>[]>`
    select id, fee_recipient as "feeRecipient" from queue_group
    where chain_id = ${chainId} and token = ${token} order by id`
  return rows.map((row) => ({ ...scope, ...row }))
}

type Probes = {
  firstQueuedAt: Date | null
  firstUrgentAt: bigint | null
  largestPayment: bigint | null
  retryDue: boolean
}

/** Whether the queue's row `q` is old enough for the triggers that count what waits. */
function isRipe(sql: Queryable, acceptedBy: Date) {
  return sql`q.accepted_at <= ${acceptedBy}`
}

/**
 * What one look-up each tells: the oldest, the greatest, the first to expire, a retry that is due.
 *
 * @param highValue from which on payments travel alone, retries as well: none of theirs makes the others due
 * @param acceptedBy what is younger isn't the oldest: it is only great, or about to expire
 */
export async function readExtremes(
  sql: Queryable,
  group: QueueGroup,
  { highValue, acceptedBy, now }: { highValue: bigint; acceptedBy: Date; now: Date },
): Promise<Omit<WaitingPayments, 'paymentCount' | 'amount'> | null> {
  const waiting = sql`q.group_id = ${group.id} and ${isWaiting(sql)}`
  const retryDue = sql`q.group_id = ${group.id} and ${isRetryDue(sql, now)}`
  const amount = sql`q.provider_amount + q.fee_amount`
  const oldest = (isTab: boolean, hasCode: boolean) => sql`
    (select q.accepted_at from queue q
      where ${waiting} and q.is_tab = ${isTab} and q.has_code = ${hasCode} and ${isRipe(sql, acceptedBy)}
      order by q.accepted_at limit 1)`
  const [row] = await sql<[Probes]>`
    select
      least(${oldest(false, false)}, ${oldest(false, true)}, ${oldest(true, false)}, ${oldest(true, true)}) as "firstQueuedAt",
      (select q.urgent_at from queue q
        where ${waiting} and ${isLoose(sql)}
        order by q.urgent_at limit 1) as "firstUrgentAt",
      greatest(
        (select ${amount} from queue q where ${waiting} and ${amount} >= 1000000 order by ${amount} desc limit 1),
        (select max(${amount}) from queue q where ${retryDue} and ${amount} >= ${highValue})
      ) as "largestPayment",
      exists (select from queue q where ${retryDue} and ${amount} < ${highValue}) as "retryDue"`
  if (row.firstUrgentAt === null && row.largestPayment === null && !row.retryDue) return null
  return {
    firstQueuedAt: row.firstQueuedAt ?? now,
    firstUrgentAt: row.firstUrgentAt ?? 2n ** 40n,
    largestPayment: row.largestPayment ?? 0n,
    retryDue: row.retryDue,
  }
}

/**
 * Finds a provider wallet for which enough waits, by amount or by number, and says what; null if there is none. Takes one step
 * a wallet until the first is found.
 *
 * @param below Greater payments don't count: they travel alone.
 * @param acceptedBy Nor do younger ones.
 */
export async function findFullWallet(
  sql: Queryable,
  group: QueueGroup,
  { amount, count }: { amount: bigint; count: number },
  { below, acceptedBy }: { below: bigint; acceptedBy: Date },
): Promise<Pick<WaitingPayments, 'paymentCount' | 'amount'> | null> {
  const waiting = sql`q.group_id = ${group.id} and ${isWaiting(sql)} and q.provider_amount + q.fee_amount < ${below}`
  // More than `count` need not be looked at: they suffice by themselves. Postgres runs the recursion only as far as the
  // limit asks.
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

/** How large the next batch would be, for an estimate of its cost. */
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

/** What callers of POST /settle wait for, and since when. */
export type AwaitedPayment = QueuedPayment & { dueAt: Date }

/** Who waits for the queue's row `q`: the provider whose key asked, or, without a key, whoever is paid. */
export function callerOf(sql: Queryable) {
  return sql`coalesce(q.provider_id, q.payee)`
}

/**
 * The awaited payments of a group but for submissions: by arrival, in turns over their callers. All that draw their gas from the
 * common allowance are one caller among those that have a grant, and take turns among themselves: keys and wallets are free. So
 * whoever has a thousand open holds up nobody else. Reads `limit` rows a caller, by one index.
 */
export async function readAwaited(
  sql: Queryable,
  { id }: QueueGroup,
  { hasCode, limit }: { hasCode: boolean; limit: number },
): Promise<AwaitedPayment[]> {
  const due = sql`q.group_id = ${id} and ${isDue(sql)} and q.has_code = ${hasCode}`
  const caller = callerOf(sql)
  return sql<AwaitedPayment[]>`
    with recursive caller (id) as (
      (select ${caller} from queue q where ${due} order by 1 limit 1)
      union all
      select (select ${caller} from queue q where ${due} and ${caller} > caller.id order by 1 limit 1)
      from caller where caller.id is not null
    ), next as (
      select own.* from caller cross join lateral (
        select q.*, row_number() over (order by q.due_at) as turn from queue q
        where ${due} and ${caller} = caller.id and q.submission is null
        order by q.due_at limit ${limit}
      ) own
    ), placed as (
      select q.*, row_number() over (
        partition by case when q.gas_drawer = 'common' then 'common' else ${caller} end order by turn, due_at
      ) as place
      from next q
    )
    select ${queuedColumns(sql)}, q.due_at as "dueAt" from placed q join payment p on p.id = q.payment_id
    order by q.place, q.due_at limit ${limit}`
}

/** The payments of the submission that waits longest on a network, and for nothing; empty: none does. */
export async function readSubmission(
  sql: Queryable,
  { chainId, token }: QueueScope,
): Promise<(QueuedPayment & { feeRecipient: Address })[]> {
  return sql<(QueuedPayment & { feeRecipient: Address })[]>`
    select ${queuedColumns(sql)}, p.fee_recipient as "feeRecipient"
    from queue q join payment p on p.id = q.payment_id
    where q.submission = (
      select q.submission from queue q
      where q.submission is not null and ${isLoose(sql)} and not ${isHeldBack(sql)}
        and q.group_id in (select id from queue_group where chain_id = ${chainId} and token = ${token})
      order by q.due_at limit 1
    )
    order by q.accepted_at, q.payment_id`
}

/** The oldest payments that wait because nothing pays for their gas, but for what a caller waits for. */
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

/** Payments of two authorizations, of one, and their distinct recipients but the platform's wallet; and tabs. */
export type NextBatchSize = Pick<BatchShape, 'pairs' | 'singles' | 'payees'> & Omit<TabBatchShape, 'hasCode'>

/** A tab, as far as it says in what company it can settle, and what it takes of a batch. */
export type QueuedTab = TabShape & { rewardShare: number }

export type QueuedPayment = {
  id: string
  /** The provider's wallet, or the splitter. */
  recipient: Address
  isPair: boolean
  /** Goes along with payments of either kind. */
  isRefund: boolean
  /** Null: it is none. */
  tab: QueuedTab | null
  hasCode: boolean
  acceptedAt: Date
} & GasMeans

/** What there is for a payment's gas, USDC base units. */
export type GasMeans = {
  /** What the platform gets by it. */
  fee: bigint
  /** Bought at the gateway: where its fee is too small, the operator's budget may add to it. */
  isSold: boolean
  /** What is reserved for it, and not spent. */
  gasLeft: bigint
  /** Unix seconds: from then on the budget adds what its fee lacks, whatever gas costs. */
  urgentAt: bigint
}

/** {@link GasMeans} of the queue's row `q` and its payment `p`. */
export function gasMeans(sql: Queryable) {
  return sql`${feeOf(sql)} as fee, p.source in ('gateway', 'tab') as "isSold", q.gas_reserved - q.gas_spent as "gasLeft",
    q.urgent_at as "urgentAt"`
}

/**
 * What the platform gets by the queue's row `q` and its payment `p`: of a tab, without the reward of who settles it. A
 * submission may be a fee alone, or pay a splitter of which it doesn't say that it is one.
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

/** Of the queue's row `q` and its payment `p`. */
export function queuedColumns(sql: Queryable) {
  return sql`q.payment_id as id, coalesce(p.splitter, p.payee) as recipient,
    p.fee_amount > 0 and p.splitter is null as "isPair", p.source = 'refund' as "isRefund", ${tabOf(sql)} as tab, q.has_code as "hasCode",
    q.accepted_at as "acceptedAt", ${gasMeans(sql)}`
}

/** {@link QueuedTab} of the queue's row `q`. */
function tabOf(sql: Queryable) {
  return sql`case when q.is_tab then (
    select json_build_object('rewardShare', t.reward_share, 'lines', count(*),
      'splits', json_agg(distinct concat(l.payee, ':', l.provider_share, ':', l.platform_share)))
    from tab_payment t join tab_line l on l.payment_id = t.payment_id
    where t.payment_id = q.payment_id
    group by t.payment_id
  ) end`
}

/** The greatest payments from `threshold` on, retries that are due among them: each is a batch by itself. */
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

export type UrgentOptions = {
  now: Date
  /** Tabs go by themselves, and payers with code. */
  isTab: boolean
  hasCode: boolean
  /** Greater ones go by themselves. */
  below: bigint
  /** Leaves out payments that were accepted later, unless they are urgent: those come first. */
  acceptedBy: Date
  limit: number
  /** How many of the oldest are left to others; then neither retries nor urgent payments are among the result. Default 0. */
  skip?: number
}

/**
 * The most urgent payments of a group: what is about to expire, due retries, then the oldest. Retries are at most half of
 * them, so that payments that keep failing don't hold up the others.
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
  // One statement, and each part by its own index.
  return sql<QueuedPayment[]>`
    select ${queuedColumns(sql)} from (
      select distinct on (payment_id) * from (
        (select 0 as urgency, q.urgent_at as place, q.* from queue q
          where ${waiting} and ${isLoose(sql)}
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
