import { owedTo } from '@tollkeeper/ledger/acceptance/badDebt'
import { halves } from '@tollkeeper/ledger/facts/halves'
import type { Database, Queryable } from '@tollkeeper/ledger/store/database'
import { isTestnet } from '@tollkeeper/ledger/store/networks'
import type { Address } from 'viem'
import { isSummed, openRevenue, type RevenueInterval, type RevenueSums } from './revenueQueries.ts'

export const payerSorts = ['gross', 'payments', 'lastPayment'] as const
export type PayerSort = (typeof payerSorts)[number]

/**
 * - `new`, `returning`: the first payment ever was in the period, or before it
 * - `owing`: the payer owes the provider something now
 * - `failing`: the payer has payments that failed, or that are retried after a failure
 */
export const payerStates = ['new', 'returning', 'owing', 'failing'] as const
export type PayerState = (typeof payerStates)[number]

/** A payer on one network as a provider sees it, without voided payments; amounts in base units. */
export type PayerRow = Omit<RevenueSums, 'waitingNet'> & {
  chainId: number
  payer: Address
  /** Number of outstanding payments that are retried after a failure. */
  retryingPayments: number
  /** Time of the first payment ever. */
  firstPaymentAt: Date
  /** Time of the last payment of the period. */
  lastPaymentAt: Date
  /** Refunds that the provider requested in the period and that have arrived. */
  refunded: bigint
  /** The payer's current debt to the provider. */
  owed: bigint
  /** The value that the list is sorted by; for `lastPayment`, Unix milliseconds. */
  position: bigint
}

/** Position of the last row of a page. */
export type PayerPosition = Pick<PayerRow, 'position' | 'chainId'> & { payer: string }

type Period = { from: Date; to: Date }

type PayerScope = {
  providerId: string
  chainId?: number | undefined
  /** Test money or real money: a list never contains both. */
  testnet: boolean
  endpointId?: string | undefined
  /** Current time: decides whether an unused authorization has expired. */
  now: Date
}

export type PayersOptions = PayerScope & {
  payer?: Address | undefined
  /** Only payments accepted in [from, to), which are whole UTC days; undefined: all payments. */
  period?: Period | undefined
  state?: PayerState | undefined
  sort: PayerSort
  after: PayerPosition | null
  limit: number
}

const counts = [
  'payments',
  'voided_payments',
  'settled_payments',
  'failed_payments',
  'tab_payments',
  'gross',
  'fee',
  'settled_net',
  'settled_fee',
  'failed_net',
] as const

/** The sums that decide which payers are on a page. The other sums are computed only for the payers on that page. */
const deciding = ['payments', 'gross', 'failed_payments'] as const

type Fragment = ReturnType<typeof isTestnet>

/** Joins a list of columns, each written by `write`. */
function columns(sql: Queryable, names: readonly string[], write: (name: string) => Fragment): Fragment {
  return names.map(write).reduce((all, one) => sql`${all}, ${one}`)
}

const sums = (sql: Queryable, names: readonly string[]) =>
  columns(sql, names, (name) => sql`sum(${sql(name)}) as ${sql(name)}`)

function scopeOf(
  sql: Queryable,
  { chainId, testnet, payer }: Pick<PayersOptions, 'chainId' | 'testnet' | 'payer'>,
) {
  return sql`${isTestnet(sql)} = ${testnet}
    ${chainId === undefined ? sql`` : sql`and chain_id = ${chainId}`}
    ${payer === undefined ? sql`` : sql`and payer = ${payer}`}`
}

const ofEndpoint = (sql: Queryable, endpointId: string | undefined) =>
  endpointId === undefined ? sql`true` : sql`endpoint_id = ${endpointId}`

const within = (sql: Queryable, period: Period | undefined, column: Fragment) =>
  period === undefined ? sql`true` : sql`(${column} >= ${period.from} and ${column} < ${period.to})`

/**
 * Lists a provider's payers.
 *
 * Final payments are summed in `payer_revenue`, and open payments are read live, as in `findRevenue`. For all time, payers without open
 * payments are read from an index in the order of the list, and the few payers with open payments are merged into the list. For a period, the sums of
 * its months and days are added up.
 */
export async function findPayers(sql: Database, query: PayersOptions): Promise<PayerRow[]> {
  const { providerId, period, endpointId, state, sort, after, limit, now } = query
  const inScope = scopeOf(sql, query)
  const isAsked = sql`${within(sql, period, sql`accepted_at`)} and ${ofEndpoint(sql, endpointId)}`
  const order = sql`position desc, chain_id, payer`
  const last = after && positionOf(sort, after)
  // The comparison `position <= last` follows from the other two, but it lets the index scan begin at the page's position.
  const isAfter =
    after === null
      ? sql`true`
      : sql`(position <= ${last} and (position < ${last} or (chain_id, payer) > (${after.chainId}, ${after.payer})))`
  const sorted = { gross: sql`gross`, payments: sql`payments`, lastPayment: sql`last_accepted_at` }[sort]
  const owed = (row: Fragment) =>
    owedTo(sql, providerId, { payer: sql`${row}.payer`, chainId: sql`${row}.chain_id` })
  const inState = (row: Fragment) =>
    ({
      new: sql`${within(sql, period, sql`${row}.first_accepted_at`)}`,
      returning: period ? sql`${row}.first_accepted_at < ${period.from}` : sql`false`,
      failing: sql`(${row}.failed_payments > 0 or ${row}.retrying_payments > 0)`,
      // Only payers with failed payments can have debts.
      owing: sql`case when ${row}.ever_failed > 0 then ${owed(row)} > 0 else false end`,
      all: sql`true`,
    })[state ?? 'all']
  const merged = (names: readonly string[]) =>
    columns(
      sql,
      names,
      (name) => sql`coalesce(s.${sql(name)}, 0) + coalesce(o.${sql(name)}, 0) as ${sql(name)}`,
    )
  const mergedWith = (summed: Fragment, join: Fragment) => sql`
    select chain_id, payer, ${merged(deciding)}, coalesce(o.retrying_payments, 0) as retrying_payments,
      least(a.first_accepted_at, o.first_accepted_at) as first_accepted_at,
      greatest(s.last_accepted_at, o.last_accepted_at) as last_accepted_at,
      coalesce(a.failed_payments, 0) + coalesce(o.ever_failed, 0) as ever_failed
    from ${summed} ${join} open o using (chain_id, payer)
    left join ever a using (chain_id, payer)`
  const ever = sql`
    ever as not materialized (select * from payer_revenue where provider_id = ${providerId} and period = 'all' and ${inScope})`
  const isAllTime = period === undefined && endpointId === undefined
  const isInSums = isAllTime
    ? sql`period = 'all'`
    : sql`${ofEndpoint(sql, endpointId)} and ${isSummed(sql, 'total', period?.from ?? new Date(0), period?.to ?? endOfTime)}`
  // A payment that is moving into the sums is counted once, because everything is one statement.
  const listed = isAllTime
    ? sql`
      (
        select chain_id, payer, ${columns(sql, deciding, (name) => sql`${sql(name)}::numeric`)}, retrying_payments, first_accepted_at,
          last_accepted_at, ever_failed
        from (
          select r.*, 0::bigint as retrying_payments, r.failed_payments::bigint as ever_failed, ${sorted} as position from ever r
          where r.payments > 0 and not exists (select from open o where o.chain_id = r.chain_id and o.payer = r.payer)
        ) r
        where ${inState(sql`r`)} and ${isAfter}
        order by ${order} limit ${limit}
      )
      union all
      (${mergedWith(sql`(select * from ever where exists (select from open o where o.chain_id = ever.chain_id and o.payer = ever.payer)) s`, sql`right join`)})`
    : mergedWith(
        sql`(
          select chain_id, payer, ${sums(sql, deciding)}, max(last_accepted_at) as last_accepted_at from payer_revenue
          where provider_id = ${providerId} and ${inScope} and ${isInSums}
          group by chain_id, payer
        ) s`,
        sql`full join`,
      )
  const rows = await sql<(Omit<PayerRow, 'owed'> & { everFailed: number })[]>`
    with open as materialized (
      select chain_id, payer, ${columns(sql, counts, (name) => sql`coalesce(sum(${sql(name)}) filter (where ${isAsked}), 0) as ${sql(name)}`)},
        coalesce(sum(retrying_payments) filter (where ${isAsked}), 0)::bigint as retrying_payments,
        coalesce(sum(failed_payments), 0)::bigint as ever_failed,
        min(accepted_at) filter (where payments > 0) as first_accepted_at,
        max(accepted_at) filter (where payments > 0 and ${isAsked}) as last_accepted_at
      from ${openRevenue(sql, { providerId, now })} u where ${inScope} group by chain_id, payer
    ), ${ever}, listed as (${listed}), page as materialized (
      select * from (select l.*, ${sorted} as position from listed l) l
      where payments > 0 and ${inState(sql`l`)} and ${isAfter}
      order by ${order} limit ${limit}
    )
    select page.chain_id as "chainId", page.payer, total.payments::int as payments, total.voided_payments::int as "voidedPayments",
      total.settled_payments::int as "settledPayments", total.failed_payments::int as "failedPayments",
      total.tab_payments::int as "tabPayments", total.gross, total.fee, total.settled_net as "settledNet",
      total.settled_fee as "settledFee", total.failed_net as "failedNet", page.retrying_payments::int as "retryingPayments",
      page.first_accepted_at as "firstPaymentAt", page.last_accepted_at as "lastPaymentAt",
      ${sort === 'lastPayment' ? sql`(extract(epoch from position) * 1000)::bigint` : sql`position`} as position,
      (
        select coalesce(sum(h.value), 0) from payment back
        join refund r on r.payment_id = back.id and r.provider_id = ${providerId}
        join payment paid on paid.id = r.of_payment_id
        join ${halves(sql)} h on h.payment_id = back.id and h.state = 'settled'
        where back.source = 'refund' and back.payee = page.payer and back.chain_id = page.chain_id
          and ${within(sql, period, sql`r.accepted_at`)} and ${endpointId === undefined ? sql`true` : sql`paid.endpoint_id = ${endpointId}`}
      ) as refunded, page.ever_failed::int as "everFailed"
    from page
    cross join lateral (
      select ${merged(counts)}
      from (
        select ${sums(sql, counts)} from payer_revenue r
        where r.payer = page.payer and r.provider_id = ${providerId} and r.chain_id = page.chain_id and ${isInSums}
      ) s
      left join open o on o.chain_id = page.chain_id and o.payer = page.payer
    ) total
    order by position desc, page.chain_id, page.payer`
  const debts = await findDebts(
    sql,
    providerId,
    rows.filter(({ everFailed }) => everFailed > 0),
  )
  return rows.map(({ everFailed: _, ...row }) => ({ ...row, owed: debts.get(debtKey(row)) ?? 0n }))
}

type Debtor = Pick<PayerRow, 'chainId' | 'payer'>

const debtKey = ({ chainId, payer }: Debtor) => `${chainId} ${payer}`

/**
 * Reads the debts of payers to a provider. This is a separate statement, because few payers need it, and planning it takes longer than most
 * lists.
 */
async function findDebts(
  sql: Database,
  providerId: string,
  payers: readonly Debtor[],
): Promise<Map<string, bigint>> {
  if (payers.length === 0) return new Map()
  const rows = await sql<(Debtor & { owed: bigint })[]>`
    select asked.chain_id as "chainId", asked.payer, owed.owed
    from unnest(${payers.map(({ chainId }) => chainId)}::integer[], ${payers.map(({ payer }) => payer)}::text[])
      as asked (chain_id, payer)
    cross join lateral (
      select ${owedTo(sql, providerId, { payer: sql`asked.payer`, chainId: sql`asked.chain_id` })} as owed
    ) owed`
  return new Map(rows.map((row) => [debtKey(row), row.owed]))
}

/** A time after every payment. */
const endOfTime = new Date('2200-01-01T00:00:00Z')

function positionOf(sort: PayerSort, { position }: PayerPosition): bigint | Date {
  return sort === 'lastPayment' ? new Date(Number(position)) : position
}

/** The number of payers within an interval, and how many of them had never paid before. */
export type PayerCounts = {
  /** Start of the day or month, UTC; null for `total`. */
  startsAt: Date | null
  /** Null: all endpoints together, or sales through the facilitator. */
  endpointId: string | null
  payers: number
  newPayers: number
}

export type PayerCountsOptions = PayerScope &
  Period & {
    interval: Exclude<RevenueInterval, 'hour'>
    groupBy: 'none' | 'endpoint'
    /** Only intervals that begin before this time. */
    before?: Date | null
    limit: number
  }

/** Counts a provider's payers by interval, and how many of them had never paid this provider before; newest interval first. */
export async function countPayers(
  sql: Database,
  {
    providerId,
    interval,
    groupBy,
    from,
    to,
    endpointId,
    before = null,
    limit,
    now,
    ...scope
  }: PayerCountsOptions,
): Promise<PayerCounts[]> {
  const inScope = scopeOf(sql, scope)
  const bucket = (column: Fragment) =>
    interval === 'total' ? sql`null::timestamptz` : sql`date_trunc(${interval}, ${column}, 'UTC')`
  const endpoint = groupBy === 'endpoint' ? sql`endpoint_id` : sql`null::text`
  const isNew =
    interval === 'total'
      ? sql`first_accepted_at >= ${from}`
      : sql`${bucket(sql`first_accepted_at`)} = seen.starts_at`
  return sql<PayerCounts[]>`
    with open as materialized (
      select chain_id, payer, endpoint_id, accepted_at from ${openRevenue(sql, { providerId, now })} u where payments > 0 and ${inScope}
    ), seen as (
      select ${bucket(sql`starts_at`)} as starts_at, ${endpoint} as endpoint_id, chain_id, payer from payer_revenue
      where provider_id = ${providerId} and ${isSummed(sql, interval, from, to)} and payments > 0 and ${inScope}
        and ${ofEndpoint(sql, endpointId)}
      union
      select ${bucket(sql`accepted_at`)}, ${endpoint}, chain_id, payer from open
      where accepted_at >= ${from} and accepted_at < ${to} and ${ofEndpoint(sql, endpointId)}
    ), ever as (
      select chain_id, payer, min(first_accepted_at) as first_accepted_at
      from (
        select chain_id, payer, first_accepted_at from payer_revenue
        where provider_id = ${providerId} and period = 'all' and ${inScope}
        union all
        select chain_id, payer, accepted_at from open
      ) one group by chain_id, payer
    )
    select starts_at as "startsAt", endpoint_id as "endpointId", count(*)::int as payers,
      count(*) filter (where ${isNew})::int as "newPayers"
    from seen join ever using (chain_id, payer)
    where ${before === null ? sql`true` : sql`starts_at < ${before}`}
    group by 1, 2 order by 1 desc, 2 limit ${limit}`
}
