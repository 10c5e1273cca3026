import type { PaymentStatus } from '@tollkeeper/sdk/protocol/paymentStatus'
import type { Address } from 'viem'
import { isOpen } from '../facts/halves.ts'
import { hasRunOut, isShown, paymentPosition, statusOf } from '../queue/stages.ts'
import type { Queryable } from '../store/database.ts'

// A sale is a payment, or the requests on a tab that were bought of one endpoint within an hour: a row of the view `sale`. A payment is
// found by its rows in `queue` and `payment_result`, a sale on a tab by its own row. Only this file and the view distinguish the two: all
// code that reads sales uses the searches below, or the view.

type Fragment = ReturnType<typeof isShown>

/** Options of a search. `withoutTabs`: only payments. */
type SearchOptions = { withoutTabs?: boolean }

/**
 * Returns searches for all sales, each by an index in the order of `accepted_at`.
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
 * Returns searches for the sales whose result isn't final, like {@link allSearches}, with these columns of the payment in addition:
 * `stage`, `kind`, `attempts`, `valid_before` and `is_partial`. Queued payments are few, so they are sorted without an index.
 *
 * Columns have the same types in all searches. So Postgres plans their union as one table, and columns that aren't selected cost nothing.
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
    from payment_result o left join payment p on p.id = o.payment_id
    where o.final_at is null
  )`
  const onTabs = sql`(
    select t.payment_id, t.number, t.provider_id, t.endpoint_id, t.chain_id, t.payer::text as payer, t.accepted_at,
      q.stage, o.kind, coalesce(q.attempts, o.attempts) as attempts, coalesce(q.valid_before, o.valid_before) as valid_before,
      false as is_partial
    from tab_sale t
    left join queue q on q.payment_id = t.payment_id
    left join payment_result o on o.payment_id = t.payment_id
    where t.arrived is null
  )`
  return withoutTabs ? [queued, ended] : [queued, ended, onTabs]
}

/**
 * Returns searches for the sales whose result is final and that didn't settle completely, like {@link openSearches}, each in the order of
 * an index.
 */
export function exceptionalSearches(sql: Queryable, { withoutTabs = false }: SearchOptions = {}): Fragment[] {
  const ended = sql`(
    select o.payment_id, 0::smallint as number, o.provider_id, p.endpoint_id, p.chain_id, o.payer, o.accepted_at,
      o.kind, o.is_partial
    from payment_result o left join payment p on p.id = o.payment_id
    where (o.kind in ('failed', 'voided') or o.is_partial) and o.final_at is not null
  )`
  const onTabs = sql`(
    select t.payment_id, t.number, t.provider_id, t.endpoint_id, t.chain_id, t.payer, t.accepted_at, o.kind, o.is_partial
    from tab_sale t join payment_result o on o.payment_id = t.payment_id
    where t.is_exceptional
  )`
  return withoutTabs ? [ended] : [ended, onTabs]
}

/**
 * Looks up the sale of a search's row by its key: a lateral subquery with the columns of the view `sale`, and the whole row as `sold`.
 * `offset 0` keeps the planner from choosing a join that reads all sales of the provider.
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
 * Returns a provider's sales whose result isn't final, with their current state, as a subquery.
 *
 * Columns: those of {@link saleOf}; `kind`, the payment's result so far; `settled`, the halves that settled; and `status`, its
 * `payment_status`.
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

/** Returns the condition that the queue's row `q` is visible in views, and that its half `half` (as in {@link isOpen}) may still settle. */
function mayMove(sql: Queryable, half: 0 | 1, now: Date) {
  return sql`${isShown(sql)} and ${isOpen(sql, half)} and not ${hasRunOut(sql, sql`q.valid_before`, now)}`
}

/**
 * Returns the amounts that may still settle to wallets, as a subquery with a row for each sale of any provider, and for each other payment.
 *
 * Columns: the wallet's `wallet_id`; those of the queue's row; `part`, the amount that the wallet receives; and `payments`, the number of
 * payments that the row counts as. The wallet's triggers count `counted_part`, `counted_payments` and `counted_whole`, which is the total
 * that the buyer pays. These three are 0 for sales on tabs, because the triggers count tabs together and not by wallet. Only the waiting time of such
 * a sale counts for the wallet.
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
 * Returns the fees that may still settle to a platform's wallet, as a subquery with a row for each payment and the columns of {@link
 * queuedSales}, except `wallet_id`. Each tab is one payment.
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

export type SoldTabsOptions = {
  providerId: string
  endpointId?: string | undefined
  chainId?: number | undefined
  payer?: Address | undefined
  /** Tabs that were imported into the ledger in [from, to). */
  from?: Date | undefined
  to: Date
  /** The last tab of the previous page; null for the first page. */
  after: { takenAt: Date; paymentId: string } | null
  limit: number
}

/** Finds the tabs on which a provider sold something, in the order in which they were imported into the ledger. */
export function findSoldTabs(
  sql: Queryable,
  { providerId, endpointId, chainId, payer, from, to, after, limit }: SoldTabsOptions,
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

/** A provider's sales on a closed tab for one endpoint and line. Amounts are in USDC base units, and include fees unless noted. */
export type ClosedItem = {
  endpointId: string
  requests: number
  amount: bigint
  /** The provider's part of `amount`. */
  net: bigint
  lastAt: Date
  position: number
  /** Amount of its line in the state that settles. */
  signed: bigint
  /** True if another provider sold on the same line as well, because both have the same wallet. */
  isShared: boolean
}

/** A tab that the ledger imported, as one of its providers sees it. */
export type ClosedTab = {
  paymentId: string
  tabId: string
  chainId: number
  payer: Address
  openedAt: Date
  closedAt: Date
  closeReason: string
  takenAt: Date
  status: PaymentStatus
  /** The provider's items. */
  items: ClosedItem[]
}

export type ClosedTabsOptions = {
  providerId: string
  chainId?: number | undefined
  payer?: Address | undefined
  /** Only the tab that settles as this payment. */
  paymentId?: string | undefined
  after: { takenAt: Date; paymentId: string } | null
  limit: number
  /** Decides whether an unused authorization has expired. */
  now: Date
}

/** Finds the tabs on which a provider sold something and that the ledger imported, the latest one first. */
export async function findClosedTabs(
  sql: Queryable,
  { providerId, chainId, payer, paymentId, after, limit, now }: ClosedTabsOptions,
): Promise<ClosedTab[]> {
  const rows = await sql<(Omit<ClosedTab, 'items'> & ClosedItem)[]>`
    with found as materialized (
      select taken_at, payment_id from tab_sale
      where provider_id = ${providerId}
        ${chainId === undefined ? sql`` : sql`and chain_id = ${chainId}`}
        ${payer === undefined ? sql`` : sql`and payer = ${payer}`}
        ${paymentId === undefined ? sql`` : sql`and payment_id = ${paymentId}`}
        ${after === null ? sql`` : sql`and (taken_at, payment_id) < (${after.takenAt}, ${after.paymentId})`}
      group by taken_at, payment_id order by taken_at desc, payment_id desc limit ${limit}
    )
    select found.payment_id as "paymentId", found.taken_at as "takenAt", tab.tab_id as "tabId", p.chain_id as "chainId", p.payer,
      tab.opened_at as "openedAt", p.accepted_at as "closedAt", tab.close_reason as "closeReason", payment_position.status,
      own.position, own.endpoint_id as "endpointId", own.requests, own.amount, own.net, own.last_at as "lastAt", l.amount as signed,
      exists (
        select from tab_sale other where other.payment_id = found.payment_id and other.position = own.position
          and other.provider_id <> ${providerId}
      ) as "isShared"
    from found
    join tab_payment tab on tab.payment_id = found.payment_id
    join payment p on p.id = found.payment_id
    cross join lateral ${paymentPosition(sql, now)} payment_position
    cross join lateral (
      select position, endpoint_id, sum(requests)::int as requests, sum(provider_amount + fee_amount) as amount,
        sum(provider_amount) as net, max(accepted_at) as last_at
      -- \`offset 0\` makes Postgres use the key. A generic plan would scan all sales of the provider on tabs.
      from (select * from tab_sale where payment_id = found.payment_id offset 0) sold where provider_id = ${providerId}
      group by position, endpoint_id
    ) own
    join tab_line l on l.payment_id = found.payment_id and l.position = own.position
    order by found.taken_at desc, found.payment_id desc, own.position, own.endpoint_id`
  return [...Map.groupBy(rows, (row) => row.paymentId).values()].map(toClosedTab)
}

function toClosedTab(rows: (Omit<ClosedTab, 'items'> & ClosedItem)[]): ClosedTab {
  const [tab] = rows as [(typeof rows)[number]]
  return {
    paymentId: tab.paymentId,
    tabId: tab.tabId,
    chainId: tab.chainId,
    payer: tab.payer,
    openedAt: tab.openedAt,
    closedAt: tab.closedAt,
    closeReason: tab.closeReason,
    takenAt: tab.takenAt,
    status: tab.status,
    items: rows.map(({ endpointId, requests, amount, net, lastAt, position, signed, isShared }) => ({
      endpointId,
      requests,
      amount,
      net,
      lastAt,
      position,
      signed,
      isShared,
    })),
  }
}
