import type { Address, Hash } from 'viem'
import { halves } from '../facts/halves.ts'
import type { Database, Queryable } from '../store/database.ts'
import { openSearches, saleOf } from './sales.ts'

// Cash-basis bookkeeping: an amount is booked at the time of the block in which it arrived. A sale whose two parts arrived in different
// transactions has two bookings, so that the first booking doesn't change when the second part arrives.

type Fragment = ReturnType<typeof saleOf>

/** A provider's month, or another period. */
export type BookingPeriod = { providerId: string; from: Date; to: Date }

/** The booking of a sale. Kind `fee`: the platform's part, which arrived without the provider's. */
export type SaleBooking = {
  kind: 'sale' | 'fee'
  paymentId: string
  /** Number of the sale on its tab; 0 for a payment. */
  number: number
  /** 0: the provider's part, and the fee if both arrived together; 1: a fee that arrived separately. */
  part: number
  acceptedAt: Date
  bookedAt: Date
  endpointId: string | null
  chainId: number
  payer: Address
  payee: Address
  tabId: string | null
  /** Number of requests that the sale paid for. */
  requests: number
  /** Transaction that settled the sale; null if an earlier credit of the buyer paid for it. */
  txHash: Hash | null
  /** USDC base units: both parts together, and the fee, which is the platform's part. */
  gross: bigint
  fee: bigint
}

/** Where a page of sales ended. */
export type SaleBookingPosition = Pick<SaleBooking, 'acceptedAt' | 'paymentId' | 'number'>

const dayMs = 86_400_000
/**
 * Maximum time in ms between a sale that isn't marked late and its settlement, with a margin. A sale is late if it settles more than two days after
 * its payment was accepted. A tab's payment is accepted up to a day after a request on the tab.
 */
const longestMs = 4 * dayMs
/** A block's time may be slightly earlier than the acceptance of the payments that it settled. */
const clockSlackMs = 3_600_000

/** Returns the range of acceptance times of sales that may have bookings in a period. Sales that are marked late may lie outside it. */
function acceptedIn({ from, to }: { from: Date; to: Date }): { from: Date; to: Date } {
  return { from: new Date(from.getTime() - longestMs), to: new Date(to.getTime() + clockSlackMs) }
}

/**
 * Returns the bookings of sales from the current record, as a subquery with a row for each part that arrived, even if it isn't final yet.
 *
 * @param candidates a subquery of sales with `payment_id`, `number` and `provider_id`.
 */
function bookingsOf(sql: Queryable, candidates: Fragment) {
  return sql`(
    select s.payment_id, s.number, s.provider_id, s.accepted_at, s.endpoint_id, s.chain_id, s.payer, s.payee, part.*
    from ${candidates} candidate
    cross join lateral ${saleOf(sql, sql`candidate`)} s
    left join payment_result o on o.payment_id = s.payment_id
    cross join lateral settled_halves(s.payment_id, s.fee_half) half
    cross join lateral sale_share(s.sold, o.kind is not distinct from 'voided', coalesce(o.arrived, half.settled)) share
    cross join lateral (
      select max(b.time) filter (where e.half = 0) as net_time, max(e.tx_hash) filter (where e.half = 0) as net_tx,
        max(b.time) filter (where e.half = s.fee_half) as fee_time, max(e.tx_hash) filter (where e.half = s.fee_half) as fee_tx
      from authorization_event e join recorded_block b on b.id = e.block_id
      where e.payment_id = s.payment_id and e.state <> 'cancelled'
    ) moved
    cross join lateral (select moved.fee_tx is not distinct from moved.net_tx or share.settled_fee = 0 as is_whole offset 0) way
    cross join lateral (
      select 0 as part, coalesce(to_timestamp(moved.net_time), o.final_at) as booked_at, moved.net_tx as tx_hash,
        share.settled_payments as requests, share.settled_net as net,
        case when way.is_whole then share.settled_fee else 0 end as fee
      union all
      select 1, to_timestamp(moved.fee_time), moved.fee_tx, 0, 0, share.settled_fee where not way.is_whole
    ) part
    where part.net + part.fee > 0 and part.booked_at is not null
  )`
}

/** Returns a provider's sales that are marked late and may have bookings at or after `from`, as a subquery. */
function lateSales(sql: Queryable, { providerId, from }: Pick<BookingPeriod, 'providerId' | 'from'>) {
  return sql`(
    select s.payment_id, s.number, s.provider_id, s.accepted_at
    from (select payment_id from payment_result where late_at >= ${from}) late
    cross join lateral (
      select payment_id, number, provider_id, accepted_at from sale where payment_id = late.payment_id and provider_id = ${providerId} offset 0
    ) s
  )`
}

/** Returns a provider's sales that were accepted in [from, to), as a subquery. */
function salesIn(sql: Queryable, providerId: string, { from, to }: { from: Date; to: Date }) {
  return sql`(
    select payment_id, number, provider_id, accepted_at from sale
    where provider_id = ${providerId} and accepted_at >= ${from} and accepted_at < ${to}
  )`
}

/**
 * Reads the bookings of sales in a period, in the order in which the sales were accepted. It reads a limited number of sales, by an index.
 *
 * @returns `next`: where the next page begins; null if this is the last page.
 */
export async function readSaleBookings(
  sql: Database,
  { providerId, from, to }: BookingPeriod,
  { after, limit }: { after: SaleBookingPosition | null; limit: number },
): Promise<{ bookings: SaleBooking[]; next: SaleBookingPosition | null }> {
  const accepted = acceptedIn({ from, to })
  const isAfter =
    after === null
      ? sql``
      : sql`and (accepted_at, payment_id, number) > (${after.acceptedAt}, ${after.paymentId}, ${after.number})`
  const order = sql`order by accepted_at, payment_id, number limit ${limit}`
  // Each branch of the union is read in the order of an index. Late sales were accepted before `accepted.from`, the others later.
  const candidates = sql`(
    select * from (
      (select * from ${lateSales(sql, { providerId, from })} late where accepted_at < ${accepted.from} ${isAfter} ${order})
      union all
      (select * from ${salesIn(sql, providerId, accepted)} recent where true ${isAfter} ${order})
    ) one ${order}
  )`
  // Use one statement, so that the page's end and its bookings come from the same snapshot.
  const rows = await sql<BookingRow[]>`
    with page as materialized (${candidates}), last as (
      select accepted_at, payment_id, number, count(*) over ()::int as count from page
      order by accepted_at desc, payment_id desc, number desc limit 1
    )
    select last.accepted_at as "lastAcceptedAt", last.payment_id as "lastPaymentId", last.number as "lastNumber", last.count,
      case when b.net > 0 then 'sale' else 'fee' end as kind, b.payment_id as "paymentId", b.number, b.part,
      b.accepted_at as "acceptedAt", b.booked_at as "bookedAt", b.endpoint_id as "endpointId", b.chain_id as "chainId", b.payer,
      b.payee, t.tab_id as "tabId", b.requests, b.tx_hash as "txHash", b.net, b.fee
    from last
    left join ${bookingsOf(sql, sql`page`)} b on b.booked_at >= ${from} and b.booked_at < ${to}
    left join tab_payment t on t.payment_id = b.payment_id
    order by b.accepted_at, b.payment_id, b.number, b.part`
  const [first] = rows
  const next =
    first !== undefined && first.count === limit
      ? { acceptedAt: first.lastAcceptedAt, paymentId: first.lastPaymentId, number: first.lastNumber }
      : null
  return { bookings: rows.flatMap(toBooking), next }
}

type Nullable<Row> = { [Name in keyof Row]: Row[Name] | null }

/** A booking and the last sale that was read. If the page has no booking, its fields are null. */
type BookingRow = Nullable<Omit<SaleBooking, 'gross'> & { net: bigint }> & {
  lastAcceptedAt: Date
  lastPaymentId: string
  lastNumber: number
  count: number
}

function toBooking({
  lastAcceptedAt: _at,
  lastPaymentId: _id,
  lastNumber: _number,
  count: _count,
  net,
  ...row
}: BookingRow): SaleBooking[] {
  if (row.paymentId === null) return []
  const booking = row as Omit<SaleBooking, 'gross'>
  return [{ ...booking, gross: (net ?? 0n) + booking.fee }]
}

/** A refund that arrived at the payer. */
export type RefundBooking = {
  paymentId: string
  number: number
  acceptedAt: Date
  bookedAt: Date
  endpointId: string | null
  chainId: number
  /** The payer who received the refund, and the wallet that paid it. */
  payer: Address
  payee: Address
  txHash: Hash
  value: bigint
}

/** Where a page of refunds ended. */
export type RefundBookingPosition = Pick<RefundBooking, 'acceptedAt' | 'paymentId' | 'number'>

/** Reads the bookings of a provider's refunds in a period, in the order in which the provider requested them. */
export async function readRefundBookings(
  sql: Database,
  { providerId, from, to }: BookingPeriod,
  { after, limit }: { after: RefundBookingPosition | null; limit: number },
): Promise<{ bookings: RefundBooking[]; next: RefundBookingPosition | null }> {
  const accepted = acceptedIn({ from, to })
  const rows = await sql<(RefundBooking & { bookedAt: Date | null })[]>`
    select r.of_payment_id as "paymentId", r.number, r.accepted_at as "acceptedAt", to_timestamp(half.block_time) as "bookedAt",
      sold.endpoint_id as "endpointId", p.chain_id as "chainId", p.payee as payer, p.payer as payee, half.tx_hash as "txHash",
      p.provider_amount as value
    from (
      select payment_id from refund
      where provider_id = ${providerId} and accepted_at >= ${accepted.from} and accepted_at < ${accepted.to}
      union
      select late.payment_id from (select payment_id from payment_result where late_at >= ${from}) late
      join refund own on own.payment_id = late.payment_id and own.provider_id = ${providerId}
    ) candidate
    join refund r on r.payment_id = candidate.payment_id
    join payment p on p.id = r.payment_id
    join payment sold on sold.id = r.of_payment_id
    cross join lateral (select * from ${halves(sql)} h where h.payment_id = p.id and h.state = 'settled') half
    where half.block_time >= ${from.getTime() / 1000} and half.block_time < ${to.getTime() / 1000}
      ${after === null ? sql`` : sql`and (r.accepted_at, r.of_payment_id, r.number) > (${after.acceptedAt}, ${after.paymentId}, ${after.number})`}
    order by r.accepted_at, r.of_payment_id, r.number limit ${limit}`
  const last = rows.length === limit ? rows.at(-1) : undefined
  return { bookings: rows, next: last ?? null }
}

/** The bookings of an endpoint's sales on one chain; amounts in base units. */
export type BookedSums = {
  chainId: number
  endpointId: string | null
  /** Number of payments and of requests on tabs whose amounts arrived. */
  payments: number
  gross: bigint
  fee: bigint
}

/**
 * Sums the bookings of sales in a month by chain and endpoint, without reading each sale.
 *
 * Final sales that were accepted well within the month were booked in it, so the stored sums of these days contain them. Only sales that
 * were accepted near the start or end of the month, are late or aren't final yet are looked up.
 *
 * @param period a whole month, or whole days.
 */
export async function sumBookings(
  sql: Database,
  { providerId, from, to }: BookingPeriod,
): Promise<BookedSums[]> {
  const inner = { from: new Date(from.getTime() + dayMs), to: new Date(to.getTime() - longestMs) }
  const accepted = acceptedIn({ from, to })
  const ends = [
    { from: accepted.from, to: inner.from },
    { from: inner.to > inner.from ? inner.to : inner.from, to: accepted.to },
  ]
  const isInner = sql`accepted_at >= ${inner.from} and accepted_at < ${inner.to}`
  const isAtEnds = sql`(accepted_at >= ${accepted.from} and accepted_at < ${accepted.to} and not (${isInner}))`
  const late = sql`(select * from ${lateSales(sql, { providerId, from })} one where not ${isAtEnds})`
  const open = openSearches(sql).map(
    (search) => sql`(
      select payment_id, number, provider_id, accepted_at from ${search} one where provider_id = ${providerId} and ${isInner}
    )`,
  )
  const looked = [late, ...ends.map((end) => salesIn(sql, providerId, end)), ...open]
  const candidates = sql`(
    select distinct payment_id, number, provider_id from (${looked.reduce((all, one) => sql`${all} union all ${one}`)}) one
  )`
  const innerLate = sql`(select * from ${lateSales(sql, { providerId, from })} one where ${isInner})`
  return sql<BookedSums[]>`
    with part as (
      select chain_id, endpoint_id, settled_payments::numeric as payments, settled_net + settled_fee as gross, settled_fee as fee
      from revenue
      where provider_id = ${providerId} and period = 'day' and starts_at >= ${inner.from} and starts_at < ${inner.to}
      union all
      select chain_id, endpoint_id, -requests, -(net + fee), -fee from ${bookingsOf(sql, innerLate)} taken
      union all
      select chain_id, endpoint_id, requests, net + fee, fee from ${bookingsOf(sql, candidates)} booked
      where booked_at >= ${from} and booked_at < ${to}
    )
    select chain_id as "chainId", endpoint_id as "endpointId", sum(payments)::int as payments, sum(gross) as gross, sum(fee) as fee
    from part group by 1, 2 having sum(gross) > 0
    order by 1, 2`
}

/**
 * Returns whether the bookings of a period can no longer change: the record is complete beyond its end on all these chains, and every block
 * of the period is final and was checked. Only a reorg of final blocks could still change them.
 */
export async function isPeriodClosed(
  sql: Database,
  { from, to }: Pick<BookingPeriod, 'from' | 'to'>,
  chainIds: readonly number[],
): Promise<boolean> {
  const seconds = (time: Date) => Math.floor(time.getTime() / 1000)
  const ids = [...chainIds]
  const [row] = await sql<[{ isClosed: boolean }]>`
    select not exists (
      select from unnest(${ids}::integer[]) as own (chain_id) left join record_head h on h.chain_id = own.chain_id
      where h.chain_id is null or h.block_number < h.read_number or h.block_time < ${seconds(to) + clockSlackMs / 1000}
    ) and not exists (
      select from recorded_block b
      where b.chain_id = any(${ids}::integer[]) and b.looked < 2 and b.time >= ${seconds(from)} and b.time < ${seconds(to)}
    ) as "isClosed"`
  return row.isClosed
}
