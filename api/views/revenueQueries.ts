import { paidSince } from '@tollkeeper/ledger/facts/payouts'
import { openSales } from '@tollkeeper/ledger/sales/sales'
import type { Queryable } from '@tollkeeper/ledger/store/database'
import { isTestnet } from '@tollkeeper/ledger/store/networks'
import type { Address } from 'viem'

export const revenueIntervals = ['hour', 'day', 'month', 'total'] as const
export type RevenueInterval = (typeof revenueIntervals)[number]

export const revenueGroups = ['none', 'endpoint', 'wallet', 'network'] as const
export type RevenueGroup = (typeof revenueGroups)[number]

/** Sums over the payments that were accepted in a period. Amounts are in base units. `gross = net + fee`. */
export type RevenueSums = {
  /** Number of accepted payments, excluding voided payments. */
  payments: number
  voidedPayments: number
  settledPayments: number
  failedPayments: number
  /** Number of `payments` that were requests on tabs. */
  tabPayments: number
  gross: bigint
  /** The platform's part. */
  fee: bigint
  /** The provider's part that has arrived, and the part that will not arrive; the remainder is outstanding. */
  settledNet: bigint
  failedNet: bigint
  /** The part of the fee that has arrived. */
  settledFee: bigint
  /** The part of `settledNet` that still waits in splitters. */
  waitingNet: bigint
}

export type RevenueRow = RevenueSums & {
  /** Start of the hour, day or month, UTC; null with `total`. */
  startsAt: Date | null
  endpointId: string | null
  chainId: number | null
  wallet: Address | null
}

export type RevenueOptions = {
  providerId: string
  interval: RevenueInterval
  groupBy: RevenueGroup
  /** Only payments accepted in [from, to), which are whole intervals. */
  from: Date
  to: Date
  endpointId?: string | undefined
  chainId?: number | undefined
  /** Test money or real money: a sum never contains both. Undefined selects both kinds of money, and needs `groupBy: 'network'`. */
  testnet: boolean | undefined
  wallet?: Address | undefined
  /** Only what this payer bought; possible by day, month or in total, but not by wallet. */
  payer?: Address | undefined
  after: RevenuePosition | null
  limit: number
  /** Current time: decides whether an unused authorization has expired. */
  now: Date
}

/** Position at which a page ended: newest interval first, then by group. */
export type RevenuePosition = { startsAt: Date | null; group: string }

/** Returns a row's sort key within its interval. */
export function groupKey({ endpointId, chainId, wallet }: RevenueRow): string {
  return endpointId ?? (chainId === null ? '' : wallet === null ? String(chainId) : `${chainId}:${wallet}`)
}

function grouping(sql: Queryable, groupBy: RevenueGroup) {
  const none = {
    endpointId: sql`null::text`,
    chainId: sql`null::integer`,
    wallet: sql`null::text`,
    key: sql`''`,
  }
  if (groupBy === 'endpoint')
    return { ...none, endpointId: sql`endpoint_id`, key: sql`coalesce(endpoint_id, '')` }
  if (groupBy === 'network') return { ...none, chainId: sql`chain_id`, key: sql`chain_id::text` }
  if (groupBy === 'wallet') {
    return { ...none, chainId: sql`chain_id`, wallet: sql`payee::text`, key: sql`chain_id || ':' || payee` }
  }
  return none
}

/**
 * Finds a provider's revenue: the stored sums of sales that can no longer change, and the rest from the current record.
 *
 * This is one statement and therefore one snapshot: a payment that is moving into the sums is counted once.
 */
export async function findRevenue(
  sql: Queryable,
  {
    providerId,
    interval,
    groupBy,
    from,
    to,
    endpointId,
    chainId,
    testnet,
    wallet,
    payer,
    after,
    limit,
    now,
  }: RevenueOptions,
): Promise<RevenueRow[]> {
  const group = grouping(sql, groupBy)
  const bucket =
    interval === 'total' ? sql`null::timestamptz` : sql`date_trunc(${interval}, starts_at, 'UTC')`
  const filters = sql`
    ${testnet === undefined ? sql`` : sql`and ${isTestnet(sql)} = ${testnet}`}
    ${endpointId === undefined ? sql`` : sql`and endpoint_id = ${endpointId}`}
    ${chainId === undefined ? sql`` : sql`and chain_id = ${chainId}`}
    ${wallet === undefined ? sql`` : sql`and payee = ${wallet}`}
    ${payer === undefined ? sql`` : sql`and payer = ${payer}`}`
  // The sums by payer are not split by wallet.
  const [sums, payee] = payer === undefined ? [sql`revenue`, sql`payee`] : [sql`payer_revenue`, sql`null`]
  return sql<RevenueRow[]>`
    with part as (
      select starts_at, endpoint_id, chain_id, ${payee} as payee, payments, voided_payments, settled_payments, failed_payments,
        tab_payments, gross, fee, settled_net, settled_fee, failed_net, 0::numeric as waiting_net
      from ${sums}
      where provider_id = ${providerId} and ${isSummed(sql, interval, from, to)} ${filters}
      union all
      select date_trunc(${interval === 'hour' ? 'hour' : 'day'}, accepted_at, 'UTC'), endpoint_id, chain_id, payee, payments, voided_payments,
        settled_payments, failed_payments, tab_payments, gross, fee, settled_net, settled_fee, failed_net, 0
      from ${openRevenue(sql, { providerId, period: { from, to }, now })} open
      where true ${filters}
      union all
      select date_trunc(${interval === 'hour' ? 'hour' : 'day'}, accepted_at, 'UTC'), endpoint_id, chain_id, payee,
        0, 0, 0, 0, 0, 0, 0, 0, 0, 0, provider_amount
      from ${waitingPayments(sql, { providerId, from, to })} waiting
      where true ${filters}
    ), summed as (
      select ${bucket} as starts_at, ${group.endpointId} as endpoint_id, ${group.chainId} as chain_id,
        ${group.wallet} as wallet, ${group.key} as key, sum(payments)::int as payments,
        sum(voided_payments)::int as voided, sum(settled_payments)::int as settled,
        sum(failed_payments)::int as failed, sum(tab_payments)::int as on_tabs, sum(gross) as gross, sum(fee) as fee, sum(settled_net) as settled_net,
        sum(settled_fee) as settled_fee, sum(failed_net) as failed_net, sum(waiting_net) as waiting_net
      from part group by 1, 2, 3, 4, 5
    )
    select starts_at as "startsAt", endpoint_id as "endpointId", chain_id as "chainId", wallet, payments,
      voided as "voidedPayments", settled as "settledPayments", failed as "failedPayments", on_tabs as "tabPayments", gross, fee,
      settled_net as "settledNet", settled_fee as "settledFee", failed_net as "failedNet",
      waiting_net as "waitingNet"
    from summed
    where payments + voided > 0
      ${after === null ? sql`` : sql`and ${isAfter(sql, after)}`}
    order by starts_at desc, key
    limit ${limit}`
}

/** Selects the stored sums that make up [from, to): hours or days if `interval` says so, otherwise whole months and the days around them. */
export function isSummed(sql: Queryable, interval: RevenueInterval, from: Date, to: Date) {
  const within = (period: string, since: Date, until: Date) =>
    sql`(period = ${period} and starts_at >= ${since} and starts_at < ${until})`
  if (interval === 'hour' || interval === 'day') return within(interval, from, to)
  const firstMonth = new Date(
    Date.UTC(from.getUTCFullYear(), from.getUTCMonth() + (isMonthStart(from) ? 0 : 1)),
  )
  const lastMonth = new Date(Date.UTC(to.getUTCFullYear(), to.getUTCMonth()))
  if (firstMonth >= lastMonth) return within('day', from, to)
  return sql`(${within('month', firstMonth, lastMonth)} or ${within('day', from, firstMonth)}
    or ${within('day', lastMonth, to)})`
}

function isMonthStart(time: Date): boolean {
  return time.getTime() === Date.UTC(time.getUTCFullYear(), time.getUTCMonth())
}

function isAfter(sql: Queryable, { startsAt, group }: RevenuePosition) {
  return startsAt === null
    ? sql`key > ${group}`
    : sql`(starts_at < ${startsAt} or (starts_at = ${startsAt} and key > ${group}))`
}

/**
 * Selects sales that aren't in the sums yet because their result isn't final. Each row has its group, `accepted_at`, and the columns of the
 * sums. While a sale's status is `failed`, the part that hasn't arrived counts as failed, as in lists.
 */
export function openRevenue(
  sql: Queryable,
  {
    providerId,
    period,
    now,
  }: { providerId: string; period?: { from: Date; to: Date } | undefined; now: Date },
) {
  return sql`(
    select open.accepted_at, open.endpoint_id, open.chain_id, open.payee, open.payer, share.payments, share.voided_payments,
      share.settled_payments, share.tab_payments, share.gross, share.fee, share.settled_net, share.settled_fee,
      case when open.status = 'retrying' then share.payments else 0 end as retrying_payments,
      case when open.status = 'failed' then share.failed_payments else 0 end as failed_payments,
      case when open.status = 'failed' then share.failed_net else 0 end as failed_net
    from ${openSales(sql, { providerId, period, now })} open
    cross join lateral sale_share(open.sold, open.kind is not distinct from 'voided', open.settled) share
  )`
}

/**
 * Selects a provider's payments that wait in splitters because they came in after the last payout. They are few, because a splitter with
 * many payments is swept. They are found through the splitters, so other payments cost nothing.
 */
function waitingPayments(
  sql: Queryable,
  { providerId, from, to }: Pick<RevenueOptions, 'providerId' | 'from' | 'to'>,
) {
  return sql`(
    select p.accepted_at, p.endpoint_id, p.chain_id, p.payee, p.payer, p.provider_amount
    from (select distinct chain_id, address from wallet where provider_id = ${providerId}) w
    join splitter s on s.chain_id = w.chain_id and s.provider = w.address
    cross join lateral (${paidSince(sql)}) paid
    join payment p on p.id = paid.payment_id and p.provider_id = ${providerId}
    where p.accepted_at >= ${from} and p.accepted_at < ${to}
  )`
}
