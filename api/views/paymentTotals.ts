import { halves } from '@tollkeeper/ledger/facts/halves'
import { statusOf } from '@tollkeeper/ledger/queue/stages'
import { exceptionalSearches, openSearches, saleOf } from '@tollkeeper/ledger/sales/sales'
import type { Database, Queryable } from '@tollkeeper/ledger/store/database'
import { isTestnet } from '@tollkeeper/ledger/store/networks'
import { networkByChainId } from '@tollkeeper/sdk/protocol/networks'
import { isNarrowedTo, type PaymentFilter, searchesOf } from './providerPaymentQueries.ts'
import { findRevenue, type RevenueInterval } from './revenueQueries.ts'

/** Sums over payments. Amounts in USDC base units; `gross = fee + net`, without voided payments. */
export type PaymentSums = {
  /** Number of payments, excluding voided payments. Each request on a tab counts as one. */
  payments: number
  voidedPayments: number
  gross: bigint
  fee: bigint
  net: bigint
  /** The part of `net` that has arrived. */
  settledNet: bigint
  /** The part of these payments' refunds that has arrived. */
  refunded: bigint
}

export type PaymentTotals = {
  /** Test money and real money are summed separately; a kind without payments is left out. */
  totals: (PaymentSums & { testnet: boolean })[]
  /** If set, the sums contain only payments accepted at this time or later, because there are too many earlier payments. Null: they contain all. */
  since: Date | null
  /** Whether `refunded` covers all refunds; false: it covers only the refunds that were requested last. */
  isRefundedComplete: boolean
}

/**
 * Maximum number of sales that are summed one by one. For a provider with a million payments, summing all of them would take seconds, on
 * every keystroke in a filter.
 */
export const maxSummed = 500
/** Maximum number of refunds that are read when a filter covers all payments of a time range. */
const maxRefunds = 1_000

/** Row limit that no query reaches: it exceeds the number of hours in two days times the number of networks. */
const maxRevenueRows = 10_000

const hourMs = 3_600_000
const dayMs = 24 * hourMs
/** A time range that covers all stored sums: from before the first payment to after the last one. */
const always = { from: new Date(0), to: new Date(Date.UTC(2200, 0)) }

/**
 * Sums the payments that match a filter, in one snapshot.
 *
 * - By endpoint, network and time: the stored sums, plus the sales at both ends of the time range that don't fill a whole hour.
 * - For everything that settled: all sales minus the few that didn't settle.
 * - By payer, amount, transaction, or any other status: the newest {@link maxSummed} sales, summed one by one.
 */
export async function sumPayments(sql: Database, filter: PaymentFilter, now: Date): Promise<PaymentTotals> {
  return (await sql.begin('isolation level repeatable read read only', (tx) =>
    sumIn(tx, filter, now),
  )) as PaymentTotals
}

async function sumIn(sql: Queryable, filter: PaymentFilter, now: Date): Promise<PaymentTotals> {
  const { status, payer, minAmount, maxAmount, txHash } = filter
  const isStored = [payer, minAmount, maxAmount, txHash].every((one) => one === undefined)
  if (!isStored || (status !== undefined && status !== 'settled')) return sumSales(sql, filter, now)
  if (status === undefined) return sumStored(sql, filter, now)
  const others = await sumSales(sql, filter, now, 'unsettled')
  // There are too many unsettled sales to subtract them all, so only the newest settled sales are summed.
  if (others.since !== null) return sumSales(sql, filter, now)
  const all = await sumStored(sql, { ...filter, status: undefined }, now)
  return { ...all, totals: add([...all.totals, ...others.totals.map(negate)]) }
}

/** Takes whole hours from the stored sums and the open sales, and sums the incomplete hours at both ends sale by sale. */
async function sumStored(sql: Queryable, filter: PaymentFilter, now: Date): Promise<PaymentTotals> {
  const { from = always.from, to = always.to } = filter
  const hours = { from: ceil(from, hourMs), to: floor(to, hourMs) }
  if (hours.from >= hours.to) return sumSales(sql, filter, now)
  const days = { from: ceil(hours.from, dayMs), to: floor(hours.to, dayMs) }
  const hasDays = days.from < days.to
  const stored = hasDays
    ? await Promise.all([
        sumRevenue(sql, filter, { from: hours.from, to: days.from }, 'hour', now),
        sumRevenue(sql, filter, days, 'total', now),
        sumRevenue(sql, filter, { from: days.to, to: hours.to }, 'hour', now),
      ])
    : [await sumRevenue(sql, filter, hours, 'hour', now)]
  const edges = await Promise.all(
    [
      { from, to: hours.from },
      { from: hours.to, to },
    ]
      .filter((edge) => edge.from < edge.to)
      .map((edge) => sumSales(sql, { ...filter, ...edge }, now)),
  )
  // If an hour has too many sales, only its newest sales are summed, so no exact sum exists for earlier sales.
  if (edges.some(({ since }) => since !== null)) return sumSales(sql, filter, now)
  const refunds = await sumRefunds(sql, { ...filter, ...hours })
  return {
    totals: add([...stored.flat(), ...edges.flatMap(({ totals }) => totals), ...refunds.sums]),
    since: null,
    isRefundedComplete: refunds.isComplete,
  }
}

type Sums = PaymentTotals['totals'][number]

const none = {
  payments: 0,
  voidedPayments: 0,
  gross: 0n,
  fee: 0n,
  net: 0n,
  settledNet: 0n,
  refunded: 0n,
}

async function sumRevenue(
  sql: Queryable,
  { providerId, endpointId, chainId, testnet }: PaymentFilter,
  { from, to }: { from: Date; to: Date },
  interval: RevenueInterval,
  now: Date,
): Promise<Sums[]> {
  if (from >= to) return []
  const rows = await findRevenue(sql, {
    providerId,
    endpointId,
    chainId,
    testnet,
    from,
    to,
    interval,
    groupBy: 'network',
    after: null,
    limit: maxRevenueRows,
    now,
  })
  return rows.map(({ chainId, payments, voidedPayments, gross, fee, settledNet }) => ({
    ...none,
    testnet: networkByChainId(chainId as number).testnet,
    payments,
    voidedPayments,
    gross,
    fee,
    net: gross - fee,
    settledNet,
  }))
}

/** Sums the arrived refunds of matching payments. If there are many refunds, sums only the latest. */
async function sumRefunds(
  sql: Queryable,
  filter: PaymentFilter,
): Promise<{ sums: Sums[]; isComplete: boolean }> {
  const rows = await sql<{ testnet: boolean; refunded: bigint; looked: number }[]>`
    select ${isTestnet(sql, sql`paid.chain_id`)} as testnet, coalesce(sum(h.value) filter (where paid.id is not null), 0) as refunded,
      count(*)::int as looked
    from (
      select payment_id, of_payment_id from refund where provider_id = ${filter.providerId}
        ${filter.from === undefined ? sql`` : sql`and accepted_at >= ${filter.from}`}
      order by accepted_at desc limit ${maxRefunds + 1}
    ) r
    left join (select *, id as payment_id from payment) paid on paid.id = r.of_payment_id and ${isNarrowedTo(sql, filter)}
    left join lateral (
      select value from ${halves(sql)} half where half.payment_id = r.payment_id and half.state = 'settled'
    ) h on true
    group by 1`
  const looked = rows.reduce((sum, row) => sum + row.looked, 0)
  const sums = rows.filter(({ refunded }) => refunded > 0n)
  return {
    sums: sums.map(({ testnet, refunded }) => ({ ...none, testnet, refunded })),
    isComplete: looked <= maxRefunds,
  }
}

/** Sums the newest matching sales one by one; with `unsettled`, only the sales whose status isn't `settled`. */
async function sumSales(
  sql: Queryable,
  filter: PaymentFilter,
  now: Date,
  which: 'all' | 'unsettled' = 'all',
): Promise<PaymentTotals> {
  const { status, minAmount, maxAmount, txHash } = filter
  const searches =
    which === 'all' ? searchesOf(sql, { status, now }) : [...openSearches(sql), ...exceptionalSearches(sql)]
  const order = sql`accepted_at desc, payment_id desc, number desc`
  const found = searches.map(
    (search) => sql`(
      select payment_id, number, provider_id, accepted_at from ${search} candidate
      where ${isNarrowedTo(sql, filter)} order by ${order} limit ${maxSummed + 1}
    )`,
  )
  const isWanted =
    status === undefined
      ? sql`true`
      : which === 'all'
        ? sql`payment_position.status = ${status}`
        : sql`payment_position.status <> ${status}`
  const amount = sql`s.provider_amount + s.fee_amount`
  const place = {
    stage: sql`q.stage`,
    kind: sql`o.kind`,
    attempts: sql`coalesce(q.attempts, o.attempts)`,
    validBefore: sql`coalesce(q.valid_before, o.valid_before)`,
    isAllSettled: sql`half.settled | case when s.fee_amount = 0 then 2 else 0 end = 3`,
    hasSettled: sql`half.settled > 0`,
  }
  type Row = Omit<PaymentSums, 'net'> & { chainId: number | null; looked: number; since: Date | null }
  const rows = await sql<Row[]>`
    with page as materialized (
      select *, row_number() over (order by ${order}) as place
      from (${found.reduce((all, search) => sql`${all} union all ${search}`)}) merged
      order by ${order} limit ${maxSummed + 1}
    )
    select s.chain_id as "chainId", sum(share.payments)::int as payments, sum(share.voided_payments)::int as "voidedPayments",
      sum(share.gross) as gross, sum(share.fee) as fee, sum(share.settled_net) as "settledNet",
      coalesce(sum(refunds.value), 0) as refunded, 0 as looked, null::timestamptz as since
    from page
    cross join lateral ${saleOf(sql, sql`page`)} s
    left join queue q on q.payment_id = s.payment_id
    left join payment_result o on o.payment_id = s.payment_id
    cross join lateral settled_halves(s.payment_id, s.fee_half) half
    cross join lateral (select ${statusOf(sql, place, now)} as status) payment_position
    cross join lateral sale_share(s.sold, o.kind is not distinct from 'voided', half.settled) share
    left join lateral (
      select sum(h.value) as value from refund r join ${halves(sql)} h on h.payment_id = r.payment_id
      where r.of_payment_id = s.payment_id and h.state = 'settled'
    ) refunds on s.source <> 'tab'
    where page.place <= ${maxSummed} and payment_position.status is not null and ${isWanted}
      ${minAmount === undefined ? sql`` : sql`and ${amount} >= ${minAmount}`}
      ${maxAmount === undefined ? sql`` : sql`and ${amount} <= ${maxAmount}`}
      ${txHash === undefined ? sql`` : sql`and share.arrived > 0`}
    group by s.chain_id
    union all
    select null, 0, 0, 0, 0, 0, 0, count(*)::int, min(accepted_at) filter (where place <= ${maxSummed}) from page`
  const seen = rows.find(({ chainId }) => chainId === null)
  const sums = rows.flatMap(({ chainId, looked: _, since: __, ...row }): Sums[] =>
    chainId === null
      ? []
      : [{ ...row, net: row.gross - row.fee, testnet: networkByChainId(chainId).testnet }],
  )
  return {
    totals: add(sums),
    since: seen !== undefined && seen.looked > maxSummed ? seen.since : null,
    isRefundedComplete: true,
  }
}

/** Adds up sums, real money first; leaves out a kind of money without payments. */
function add(all: readonly Sums[]): Sums[] {
  return [false, true].flatMap((testnet) => {
    const own = all.filter((one) => one.testnet === testnet)
    const sum = own.reduce(
      (total, one) => ({
        testnet,
        payments: total.payments + one.payments,
        voidedPayments: total.voidedPayments + one.voidedPayments,
        gross: total.gross + one.gross,
        fee: total.fee + one.fee,
        net: total.net + one.net,
        settledNet: total.settledNet + one.settledNet,
        refunded: total.refunded + one.refunded,
      }),
      { testnet, ...none },
    )
    return sum.payments + sum.voidedPayments > 0 ? [sum] : []
  })
}

function negate(sums: Sums): Sums {
  return {
    testnet: sums.testnet,
    payments: -sums.payments,
    voidedPayments: -sums.voidedPayments,
    gross: -sums.gross,
    fee: -sums.fee,
    net: -sums.net,
    settledNet: -sums.settledNet,
    refunded: -sums.refunded,
  }
}

function floor(time: Date, ms: number): Date {
  return new Date(Math.floor(time.getTime() / ms) * ms)
}

function ceil(time: Date, ms: number): Date {
  return new Date(Math.ceil(time.getTime() / ms) * ms)
}
