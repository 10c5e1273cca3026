import { z } from '@hono/zod-openapi'
import { halves, hasMoved, hasSettled } from '@tollkeeper/ledger/facts/halves'
import { payoutOf } from '@tollkeeper/ledger/facts/payouts'
import { hasRunOut, isFresh, isSent, paymentPosition } from '@tollkeeper/ledger/queue/stages'
import { allSearches, exceptionalSearches, openSearches, saleOf } from '@tollkeeper/ledger/sales/sales'
import type { Database, Queryable } from '@tollkeeper/ledger/store/database'
import { isTestnet } from '@tollkeeper/ledger/store/networks'
import { networkByChainId } from '@tollkeeper/sdk/protocol/networks'
import { type PaymentStatus, paymentStatuses } from '@tollkeeper/sdk/protocol/paymentStatus'
import type { Address, Hex } from 'viem'
import * as wire from '../http/wire.ts'
import { paymentSources } from '../payments/records/payments.ts'

export const providerPayment = z
  .object({
    paymentId: wire.paymentId,
    // Null: it came through the facilitator, or is part of a tab.
    requestId: wire.requestId.nullable(),
    payment_status: z.enum(paymentStatuses),
    source: z.enum(paymentSources),
    tab: z
      .object({
        tabId: wire.tabId,
        sale: z.int().openapi({ description: 'Sequence number of this sale among the sales on the tab' }),
        requests: z.int(),
      })
      .nullable()
      .openapi({
        description:
          'Sales on a tab: a row per endpoint and hour, with its requests and amounts. ' +
          'Its status is the status of the whole tab’s payment',
      }),
    // Null: it came through the facilitator.
    endpointId: wire.endpointId.nullable(),
    network: wire.networkName,
    testnet: wire.testnet,
    payer: wire.addressOut,
    payTo: wire.addressOut,
    totalUsdc: wire.baseUnits,
    providerUsdc: wire.baseUnits,
    platformUsdc: wire.baseUnits,
    settledUsdc: wire.baseUnits.openapi({
      description:
        'The part of `providerUsdc` that has arrived: less than all if an older state of a tab settled',
    }),
    tier: z.string(),
    resource: z.string(),
    acceptedAt: wire.isoTime,
    settledAt: wire.isoSeconds.nullable(),
    // Transaction that moved the provider's half; null until it is recorded.
    transactionHash: wire.hashOut.nullable(),
    platformTransactionHash: wire.hashOut.nullable(),
    splitter: wire.addressOut.nullable().openapi({
      description:
        'Splitter that receives both parts by one authorization; null: each part has a separate authorization',
    }),
    paidOutAt: wire.isoSeconds
      .nullable()
      .openapi({ description: 'When its splitter paid it out; null: not yet, or it pays no splitter' }),
    payoutTransactionHash: wire.hashOut.nullable(),
    attempts: z.int(),
    nextAttemptAt: wire.isoTime.nullable(),
    failureCode: z.string().nullable(),
    failedAt: wire.isoTime.nullable(),
    voidedAt: wire.isoTime.nullable(),
    refundedUsdc: wire.baseUnits.openapi({ description: 'Total of its refunds that have arrived' }),
  })
  .openapi('ProviderPayment')

/** A payment as its provider sees it, plus fields that only the statement shows. */
export type ProviderPayment = z.input<typeof providerPayment> & {
  chainId: number
  /** The part of the platform's fee that has arrived. */
  settledFeeUsdc: bigint
}

/** Position at which a page ended. `sale`: the number of a sale on a tab; default: 0. */
export type PaymentPosition = { acceptedAt: Date; paymentId: string; sale?: number | undefined }

/** Filters for a provider's payments, in a list and in its totals. */
export type PaymentFilter = {
  providerId: string
  status?: PaymentStatus | undefined
  endpointId?: string | undefined
  chainId?: number | undefined
  payer?: Address | undefined
  /** Accepted in [from, to). */
  from?: Date | undefined
  to?: Date | undefined
  /** The buyer's price, provider's and platform's parts together, in base units. */
  minAmount?: bigint | undefined
  maxAmount?: bigint | undefined
  /** Only payments with a half that settled in this transaction. */
  txHash?: Hex | undefined
  /** Only test money, or only real money; default: no filter. */
  testnet?: boolean | undefined
}

export type PaymentFilters = PaymentFilter & {
  /** Leaves out sales on tabs. */
  withoutTabs?: boolean
  after: PaymentPosition | null
  limit: number
  /** Default: newest first. */
  oldestFirst?: boolean
  /** Current time: decides whether an unused authorization has expired. */
  now: Date
}

export type PaymentPage = {
  payments: ProviderPayment[]
  /** Null on the last page. A page may hold fewer payments than asked for and still have a next one. */
  next: PaymentPosition | null
}

type Row = Omit<ProviderPayment, 'payment_status' | 'tab' | 'network' | 'testnet'> & {
  tabId: string | null
  sale: number
  requests: number
  /** Null: the payment is only reserved. */
  payment_status: PaymentStatus | null
  /** The search that found this row stopped at it, and may have more rows. */
  isLast: boolean
}

type WantedRow = Row & { payment_status: PaymentStatus }

const rowsLookedAt = 5_000

/**
 * Finds a provider's payments, newest or oldest first. Sales on tabs are included, one row per endpoint and hour.
 *
 * A status also depends on the chain, so no column contains it. The query uses an index to find all rows that may have the requested status, and then
 * computes the status of each. Rows with another status are discarded. A page reads a limited number of rows. Filters by amount work in the same way,
 * because amounts have no index either.
 */
export async function findProviderPayments(sql: Database, filters: PaymentFilters): Promise<PaymentPage> {
  const { limit } = filters
  const payments: ProviderPayment[] = []
  let { after } = filters
  let last: Row | undefined
  let chunk = limit + 1
  for (let looked = 0; looked < rowsLookedAt; looked += chunk, chunk = Math.min(chunk * 4, 1_000)) {
    const rows = await readPayments(sql, { ...filters, after }, chunk)
    // If a search stopped early, its remaining rows may come before rows of the other searches. So only rows up to its last row are in order.
    const end = rows.find(({ isLast }) => isLast)
    for (const row of end ? rows.slice(0, rows.indexOf(end) + 1) : rows) {
      if (!isWanted(row, filters)) continue
      if (payments.length === limit) return { payments, next: positionOf(last) }
      payments.push(toPayment(row))
      last = row
    }
    after = positionOf(end)
    if (after === null) break
  }
  return { payments, next: after }
}

function isWanted(row: Row, { status, minAmount = 0n, maxAmount }: PaymentFilters): row is WantedRow {
  const { totalUsdc: amount, payment_status: found } = row
  if (amount < minAmount || (maxAmount !== undefined && amount > maxAmount)) return false
  return found !== null && (status === undefined || found === status)
}

function toPayment({ tabId, sale, requests, ...row }: WantedRow): ProviderPayment {
  const tab = tabId === null ? null : { tabId, sale, requests }
  const { name, testnet } = networkByChainId(row.chainId)
  return { ...row, tab, network: name, testnet }
}

function positionOf(row: Row | undefined): PaymentPosition | null {
  if (row === undefined) return null
  const { acceptedAt, paymentId, sale } = row
  return { acceptedAt, paymentId, ...(sale > 0 && { sale }) }
}

type Fragment = ReturnType<typeof settledBy>

/**
 * Returns searches that find all sales of a status, each by an index in the order of the page. A search's row is named `k`.
 *
 * The searches may also find sales of other statuses, because a row's exact status is computed only once the row is on the page.
 */
export function searchesOf(
  sql: Queryable,
  { status, now, withoutTabs = false }: Pick<PaymentFilters, 'status' | 'now' | 'withoutTabs'>,
): Fragment[] {
  const among = (searches: Fragment[], condition: Fragment) =>
    searches.map((search) => sql`(select * from ${search} k where ${condition})`)
  const all = (condition: Fragment) => among(allSearches(sql, { withoutTabs }), condition)
  const open = (condition: Fragment) => among(openSearches(sql, { withoutTabs }), condition)
  const exceptional = (condition: Fragment) => among(exceptionalSearches(sql, { withoutTabs }), condition)
  const hasArrived = hasSettled(sql, sql`k.payment_id`)
  const isSpent = sql`(k.kind = 'spent' and ${hasArrived} is null)`
  switch (status) {
    case 'settled':
      return all(hasArrived)
    case 'partially_settled':
      return [...open(hasArrived), ...exceptional(sql`k.is_partial`)]
    case 'voided':
      return [...open(sql`k.kind = 'voided'`), ...exceptional(sql`k.kind = 'voided'`)]
    case 'failed':
      return [
        ...open(
          sql`(k.kind = 'failed' or k.kind is distinct from 'voided' and ${hasRunOut(sql, sql`k.valid_before`, now)})`,
        ),
        ...exceptional(sql`k.kind = 'failed'`),
      ]
    case 'retrying':
      return open(sql`(k.attempts > 0 and k.kind is null or ${isSpent})`)
    case 'verified':
      return open(sql`(${isFresh(sql, 'k')} or ${isSpent})`)
    case 'settling':
      return open(isSent(sql, 'k'))
    default:
      return all(sql`true`)
  }
}

/**
 * Runs all searches and merges their rows in the order of the page. The database returns only rows that match the filters, and the row at which a
 * search stopped, even if that row doesn't match.
 */
async function readPayments(sql: Database, filters: PaymentFilters, limit: number): Promise<Row[]> {
  const { status, txHash, after, minAmount, maxAmount } = filters
  const [direction, isAfter] = filters.oldestFirst ? [sql`asc`, sql`>`] : [sql`desc`, sql`<`]
  const order = sql`accepted_at ${direction}, payment_id ${direction}, number ${direction}`
  const searches = searchesOf(sql, filters).map(
    (search) => sql`(
      select payment_id, number, provider_id, accepted_at, row_number() over (order by ${order}) = ${limit} as is_last
      from ${search} candidate
      where ${isNarrowedTo(sql, filters)}
        ${
          after === null
            ? sql``
            : sql`and (accepted_at, payment_id, number) ${isAfter} (${after.acceptedAt}, ${after.paymentId}, ${after.sale ?? 0})`
        }
      order by ${order}
      limit ${limit}
    )`,
  )
  const amount = sql`s.provider_amount + s.fee_amount`
  return sql<Row[]>`
    with page as materialized (${searches.reduce((all, search) => sql`${all} union all ${search}`)})
    select s.payment_id as "paymentId", p.request_id as "requestId", s.source, s.endpoint_id as "endpointId",
      s.chain_id as "chainId", s.payer, s.payee as "payTo", s.provider_amount as "providerUsdc", s.fee_amount as "platformUsdc",
      ${amount} as "totalUsdc", tab.tab_id as "tabId", s.number as sale, s.requests, p.tier,
      case when tab.tab_id is null then p.resource else sold.url end as resource,
      s.accepted_at as "acceptedAt", page.is_last as "isLast", payment_position.status as payment_status, payment_position.attempts,
      payment_position.next_attempt_at as "nextAttemptAt", payment_position.failure_code as "failureCode", payment_position.failed_at as "failedAt",
      payment_position.voided_at as "voidedAt", share.settled_net as "settledUsdc", share.settled_fee as "settledFeeUsdc",
      case when share.settled_net > 0 then payment_position.used_tx end as "transactionHash",
      case when share.settled_net > 0 then payment_position.used_time end as "settledAt",
      case when share.arrived > share.settled_net then coalesce(payment_position.fee_tx, payment_position.used_tx) end as "platformTransactionHash",
      s.splitter, payout.tx_hash as "payoutTransactionHash", payout.block_time as "paidOutAt",
      (
        select coalesce(sum(h.value), 0) from refund r join ${halves(sql)} h on h.payment_id = r.payment_id
        where r.of_payment_id = p.id and h.state = 'settled'
      ) as "refundedUsdc"
    from page
    cross join lateral ${saleOf(sql, sql`page`)} s
    join payment p on p.id = page.payment_id
    left join tab_payment tab on tab.payment_id = s.payment_id
    left join endpoint sold on sold.id = s.endpoint_id
    cross join lateral ${paymentPosition(sql, filters.now)} payment_position
    cross join lateral sale_share(s.sold, false, payment_position.settled) share
    left join lateral ${payoutOf(sql)} payout on true
    where page.is_last or (
      ${status === undefined ? sql`true` : sql`payment_position.status = ${status}`}
      ${minAmount === undefined ? sql`` : sql`and ${amount} >= ${minAmount}`}
      ${maxAmount === undefined ? sql`` : sql`and ${amount} <= ${maxAmount}`}
      ${txHash === undefined ? sql`` : sql`and share.arrived > 0`}
    )
    order by page.accepted_at ${direction}, page.payment_id ${direction}, page.number ${direction}`
}

/** Builds the condition that a search's row matches all filters except status and amount. */
export function isNarrowedTo(
  sql: Queryable,
  { providerId, endpointId, chainId, payer, from, to, txHash, testnet }: PaymentFilter,
) {
  return sql`provider_id = ${providerId}
    ${endpointId === undefined ? sql`` : sql`and endpoint_id = ${endpointId}`}
    ${chainId === undefined ? sql`` : sql`and chain_id = ${chainId}`}
    ${testnet === undefined ? sql`` : sql`and ${isTestnet(sql)} = ${testnet}`}
    ${payer === undefined ? sql`` : sql`and payer = ${payer}`}
    ${from === undefined ? sql`` : sql`and accepted_at >= ${from}`}
    ${to === undefined ? sql`` : sql`and accepted_at < ${to}`}
    ${txHash === undefined ? sql`` : sql`and payment_id = any(${settledBy(sql, txHash)})`}`
}

/** Selects an array of the payments that a transaction moved. They are few, so they are looked up one by one. */
function settledBy(sql: Queryable, txHash: Hex) {
  return sql`array(
    select e.payment_id from authorization_event e
    where left(e.tx_hash, 10) = left(${txHash}, 10) and e.tx_hash = ${txHash} and ${hasMoved(sql)}
  )`
}
