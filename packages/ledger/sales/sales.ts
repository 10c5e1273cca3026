import type { Address } from 'viem'
import { isOpen } from '../facts/halves.ts'
import { hasRunOut, isShown, statusOf } from '../queue/stages.ts'
import type { Queryable } from '../store/database.ts'

// A sale is a payment, or the requests on a tab that were bought of one endpoint within an hour: a row of the view `sale`. A payment is
// found by its rows in `queue` and `outcome`, a sale on a tab by its own row. This is the only place that knows the difference: whatever
// reads sales takes the searches below, or the view.

type Fragment = ReturnType<typeof isShown>

/** Which sales a list shows. `withoutTabs`: only payments. */
type SearchOptions = { withoutTabs?: boolean }

/**
 * Searches for all sales, by an index in the order of `accepted_at`.
 *
 * A search is a subquery with the sale's `payment_id`, `number`, `provider_id`, `endpoint_id`, `chain_id`, `payer` and `accepted_at`.
 * Restrict it by `provider_id` or `endpoint_id`.
 */
export function allSearches(sql: Queryable, { withoutTabs = false }: SearchOptions = {}): Fragment[] {
  const payments = sql`(
    select id as payment_id, 0::smallint as number, provider_id, endpoint_id, chain_id, payer, accepted_at from payment
  )`
  return [withoutTabs ? payments : sql`sale`]
}

/**
 * Searches for the sales whose end isn't final: as {@link allSearches}, with where the payment stands as well: `stage`, `kind`,
 * `attempts`, `valid_before` and `is_partial`. Queued payments aren't in the order of an index, because they are few.
 *
 * Columns have the same types in all of them. So Postgres plans their union as one table, and columns that aren't selected cost nothing.
 */
export function openSearches(sql: Queryable, { withoutTabs = false }: SearchOptions = {}): Fragment[] {
  const queued = sql`(
    select q.payment_id, 0::smallint as number, q.provider_id, p.endpoint_id, p.chain_id, q.payer, q.accepted_at,
      q.stage, null::text as kind, q.attempts, q.valid_before, false as is_partial
    from queue q left join payment p on p.id = q.payment_id
    where ${isShown(sql)}
  )`
  const ended = sql`(
    select o.payment_id, 0::smallint as number, o.provider_id, p.endpoint_id, p.chain_id, o.payer::text as payer, o.accepted_at,
      null::text as stage, o.kind, o.attempts, o.valid_before, o.is_partial
    from outcome o left join payment p on p.id = o.payment_id
    where o.final_at is null
  )`
  const onTabs = sql`(
    select t.payment_id, t.number, t.provider_id, t.endpoint_id, t.chain_id, t.payer::text as payer, t.accepted_at,
      q.stage, o.kind, coalesce(q.attempts, o.attempts) as attempts, coalesce(q.valid_before, o.valid_before) as valid_before,
      false as is_partial
    from tab_sale t
    left join queue q on q.payment_id = t.payment_id
    left join outcome o on o.payment_id = t.payment_id
    where t.arrived is null
  )`
  return withoutTabs ? [queued, ended] : [queued, ended, onTabs]
}

/** Searches for the sales whose end is final and which didn't settle completely: as {@link openSearches}, each by an index in order. */
export function exceptionalSearches(sql: Queryable, { withoutTabs = false }: SearchOptions = {}): Fragment[] {
  const ended = sql`(
    select o.payment_id, 0::smallint as number, o.provider_id, p.endpoint_id, p.chain_id, o.payer, o.accepted_at,
      o.kind, o.is_partial
    from outcome o left join payment p on p.id = o.payment_id
    where (o.kind in ('failed', 'voided') or o.is_partial) and o.final_at is not null
  )`
  const onTabs = sql`(
    select t.payment_id, t.number, t.provider_id, t.endpoint_id, t.chain_id, t.payer, t.accepted_at, o.kind, o.is_partial
    from tab_sale t join outcome o on o.payment_id = t.payment_id
    where t.is_exceptional
  )`
  return withoutTabs ? [ended] : [ended, onTabs]
}

/**
 * The sale that a row of a search found, looked up by its key: a lateral subquery with the columns of the view `sale`, and the whole row
 * as `sold`. `offset 0` keeps the planner from a join that reads all that the provider ever sold.
 *
 * @param row with the columns `payment_id`, `number` and `provider_id`.
 */
export function saleOf(sql: Queryable, row: Fragment) {
  return sql`(
    select sold.*, sold from sale sold
    where sold.payment_id = ${row}.payment_id and sold.number = ${row}.number and sold.provider_id = ${row}.provider_id
    offset 0
  )`
}

/**
 * A provider's sales whose end isn't final, and where they stand: a subquery.
 *
 * Columns: those of {@link saleOf}; `kind`, the payment's outcome so far; `settled`, the halves that settled;
 * and `status`, its `payment_status`.
 *
 * @param options.period only sales accepted in [from, to).
 * @param options.now decides whether an unused authorization has expired.
 */
export function openSales(
  sql: Queryable,
  {
    providerId,
    period,
    now,
  }: { providerId: string; period?: { from: Date; to: Date } | undefined; now: Date },
) {
  const status = statusOf(
    sql,
    {
      stage: sql`open.stage`,
      kind: sql`open.kind`,
      attempts: sql`open.attempts`,
      validBefore: sql`open.valid_before`,
      isAllSettled: sql`half.settled | case when s.fee_amount = 0 then 2 else 0 end = 3`,
      hasSettled: sql`half.settled > 0`,
    },
    now,
  )
  return sql`(
    select s.*, open.kind, half.settled, ${status} as status
    from (${openSearches(sql).reduce((all, search) => sql`${all} union all ${search}`)}) open
    cross join lateral ${saleOf(sql, sql`open`)} s
    cross join lateral settled_halves(s.payment_id, s.fee_half) half
    where open.provider_id = ${providerId}
      ${period ? sql`and open.accepted_at >= ${period.from} and open.accepted_at < ${period.to}` : sql``}
  )`
}

/** Whether something of the queue's row `q` may still move to the recipient of a half. */
function mayMove(sql: Queryable, half: 0 | 1, now: Date) {
  return sql`${isShown(sql)} and ${isOpen(sql, half)} and not ${hasRunOut(sql, sql`q.valid_before`, now)}`
}

/**
 * What may still settle to wallets: a subquery with a row for each sale, whoever sold it, and for each other payment.
 *
 * Columns: the wallet's `wallet_id`; those of the queue's row; `part`, what the wallet receives of it; and `payments`, as how many it
 * counts. And what the triggers of the wallet count of it: `counted_part`, `counted_payments` and `counted_whole`, all that its buyer
 * pays. They are 0 for sales on tabs: when a tab settles depends on all tabs, so only its time counts here.
 *
 * @param wallets a subquery with the columns `wallet_id`, `chain_id`, `token` and `address`.
 */
export function queuedSales(sql: Queryable, wallets: Fragment, now: Date) {
  return sql`(
    select w.wallet_id, q.*, q.provider_amount as part, 1 as payments,
      q.provider_amount as counted_part, 1 as counted_payments, q.provider_amount + q.fee_amount as counted_whole
    from ${wallets} w
    join queue_group g on g.chain_id = w.chain_id and g.token = w.token
    join queue q on q.group_id = g.id and q.payee = w.address
    where ${mayMove(sql, 0, now)}
    union all
    select w.wallet_id, q.*, t.provider_amount, t.requests, 0::usdc_amount, 0, 0::numeric
    from ${wallets} w
    join wallet own on own.chain_id = w.chain_id and own.address = w.address
    join tab_sale t on t.provider_id = own.provider_id and t.chain_id = own.chain_id and t.payee = own.address and t.arrived is null
    join queue q on q.payment_id = t.payment_id
    join queue_group g on g.id = q.group_id and g.token = w.token
    where ${mayMove(sql, 0, now)}
  )`
}

/**
 * The fees that may still settle to a platform's wallet: a subquery with a row for each payment, and columns as {@link queuedSales}, but
 * for `wallet_id`. Each tab is one payment.
 */
export function queuedFees(
  sql: Queryable,
  { chainId, token, wallet }: { chainId: number; token: Address; wallet: Address },
  now: Date,
) {
  const ifCounted = (amount: Fragment) => sql`case when q.is_tab then 0 else ${amount} end`
  return sql`(
    select q.*, q.fee_amount as part, 1 as payments, ${ifCounted(sql`q.fee_amount`)} as counted_part,
      ${ifCounted(sql`1`)} as counted_payments, q.provider_amount + q.fee_amount as counted_whole
    from queue_group g join queue q on q.group_id = g.id
    where g.chain_id = ${chainId} and g.token = ${token} and g.fee_recipient = ${wallet} and q.fee_amount > 0
      and ${mayMove(sql, 1, now)}
  )`
}

export type SoldTabsQuestion = {
  providerId: string
  endpointId?: string | undefined
  chainId?: number | undefined
  payer?: Address | undefined
  /** Tabs that were taken into the ledger in [from, to). */
  from?: Date | undefined
  to: Date
  /** From this tab on. */
  after: { takenAt: Date; paymentId: string } | null
  limit: number
}

/** Finds the tabs on which a provider sold something, in the order in which they were taken into the ledger. */
export function findSoldTabs(
  sql: Queryable,
  { providerId, endpointId, chainId, payer, from, to, after, limit }: SoldTabsQuestion,
): Promise<{ paymentId: string; takenAt: Date }[]> {
  return sql<{ paymentId: string; takenAt: Date }[]>`
    select payment_id as "paymentId", taken_at as "takenAt" from tab_sale
    where provider_id = ${providerId} and taken_at < ${to}
      ${endpointId === undefined ? sql`` : sql`and endpoint_id = ${endpointId}`}
      ${chainId === undefined ? sql`` : sql`and chain_id = ${chainId}`}
      ${payer === undefined ? sql`` : sql`and payer = ${payer}`}
      ${from === undefined ? sql`` : sql`and taken_at >= ${from}`}
      ${after === null ? sql`` : sql`and (taken_at, payment_id) >= (${after.takenAt}, ${after.paymentId})`}
    group by taken_at, payment_id order by taken_at, payment_id limit ${limit}`
}
