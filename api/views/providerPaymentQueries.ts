import { z } from '@hono/zod-openapi'
import { halves, hasSettled } from '@tollkeeper/ledger/facts/halves'
import { payoutOf } from '@tollkeeper/ledger/facts/payouts'
import { isFresh, isSent, isShown, standingOf } from '@tollkeeper/ledger/queue/stages'
import type { Database, Queryable } from '@tollkeeper/ledger/store/database'
import { networkByChainId } from '@tollkeeper/sdk/protocol/networks'
import { type PaymentStatus, paymentStatuses } from '@tollkeeper/sdk/protocol/paymentStatus'
import type { Address, Hex } from 'viem'
import * as wire from '../http/wire.ts'
import { paymentSources } from '../payments/records/payments.ts'

export const providerPayment = z
  .object({
    paymentId: wire.paymentId,
    // Null: came through the facilitator, or is of a tab.
    requestId: wire.requestId.nullable(),
    payment_status: z.enum(paymentStatuses),
    source: z.enum(paymentSources),
    tab: z
      .object({
        tabId: wire.tabId,
        sale: z.int().openapi({ description: 'Its number among what was sold on this tab' }),
        requests: z.int(),
      })
      .nullable()
      .openapi({
        description:
          'What was sold on a tab: a row for each endpoint and hour, with its requests and amounts. ' +
          'Where it stands is where the payment of the whole tab does',
      }),
    // Null: came through the facilitator.
    endpointId: wire.endpointId.nullable(),
    network: wire.networkName,
    testnet: wire.testnet,
    payer: wire.addressOut,
    payTo: wire.addressOut,
    totalUsdc: wire.baseUnits,
    providerUsdc: wire.baseUnits,
    platformUsdc: wire.baseUnits,
    settledUsdc: wire.baseUnits.openapi({
      description: 'Of `providerUsdc`, what has arrived: less than all where an older state of a tab moved',
    }),
    tier: z.string(),
    resource: z.string(),
    acceptedAt: wire.isoTime,
    settledAt: wire.isoSeconds.nullable(),
    // Of the provider's half; null while it isn't recorded.
    transactionHash: wire.hashOut.nullable(),
    platformTransactionHash: wire.hashOut.nullable(),
    splitter: wire.addressOut
      .nullable()
      .openapi({ description: 'Whom the one authorization pays; null: each part has one of its own' }),
    paidOutAt: wire.isoSeconds
      .nullable()
      .openapi({ description: 'By its splitter; null: not yet, or it pays none' }),
    payoutTransactionHash: wire.hashOut.nullable(),
    attempts: z.int(),
    nextAttemptAt: wire.isoTime.nullable(),
    failureCode: z.string().nullable(),
    failedAt: wire.isoTime.nullable(),
    voidedAt: wire.isoTime.nullable(),
    refundedUsdc: wire.baseUnits.openapi({ description: 'What has arrived of its refunds' }),
  })
  .openapi('ProviderPayment')

/** A payment as its provider sees it, and what only the statement shows of it. */
export type ProviderPayment = z.input<typeof providerPayment> & {
  chainId: number
  /** Of the platform's part, what has arrived. */
  settledFeeUsdc: bigint
}

/** Where a page ended. `sale`: a tab's. */
export type PaymentPosition = { acceptedAt: Date; paymentId: string; sale?: number | undefined }

export type PaymentFilters = {
  providerId: string
  status?: PaymentStatus | undefined
  endpointId?: string | undefined
  chainId?: number | undefined
  payer?: Address | undefined
  /** Accepted in [from, to). */
  from?: Date | undefined
  to?: Date | undefined
  /** The buyer's price, both parts, base units. */
  minAmount?: bigint | undefined
  maxAmount?: bigint | undefined
  /** Only payments with a half that settled in this transaction. */
  txHash?: Hex | undefined
  withoutTabs?: boolean
  after: PaymentPosition | null
  limit: number
  /** Default: the newest first. */
  oldestFirst?: boolean
  /** Decides whether an unused authorization has expired. */
  now: Date
}

export type PaymentPage = {
  payments: ProviderPayment[]
  /** Null on the last page. A page may hold fewer payments than asked for and still have a next one. */
  next: PaymentPosition | null
}

type Row = Omit<ProviderPayment, 'payment_status' | 'tab' | 'network' | 'testnet'> & {
  tabId: string | null
  sale: number | null
  requests: number | null
  /** Null: it is only reserved. */
  payment_status: PaymentStatus | null
  /** A search ended with it, and may have more. */
  isLast: boolean
}

type WantedRow = Row & { payment_status: PaymentStatus }

const rowsLookedAt = 5_000

/**
 * A provider's payments, newest or oldest first. Sales on tabs are among them, a row for each hour of an endpoint.
 *
 * A status depends on the chain, too, and no column holds it. So the query takes by an index all rows that may have it, and
 * then computes the status of each; a page reads a bounded number of others. The same goes for amounts, which have no
 * index either.
 */
export async function findProviderPayments(sql: Database, filters: PaymentFilters): Promise<PaymentPage> {
  const { limit } = filters
  const payments: ProviderPayment[] = []
  let { after } = filters
  let last: Row | undefined
  let chunk = limit + 1
  for (let looked = 0; looked < rowsLookedAt; looked += chunk, chunk = Math.min(chunk * 4, 1_000)) {
    const rows = await readPayments(sql, { ...filters, after }, chunk)
    // If a search stopped early, its further payments may come before those of other searches, so the page ends there.
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
  const tab = tabId === null || sale === null || requests === null ? null : { tabId, sale, requests }
  const { name, testnet } = networkByChainId(row.chainId)
  return { ...row, tab, network: name, testnet }
}

function positionOf(row: Row | undefined): PaymentPosition | null {
  if (row === undefined) return null
  const { acceptedAt, paymentId, sale } = row
  return { acceptedAt, paymentId, ...(sale !== null && { sale }) }
}

type Fragment = ReturnType<typeof settledBy>

/**
 * The tables in which payments of a status can be, each with an index in the order of the page. Conditions on the payment itself
 * join it, and cost nothing if there are none.
 */
function candidates(sql: Queryable, { status, now, withoutTabs = false }: PaymentFilters) {
  const placed = (table: Fragment, condition: Fragment) => sql`(
    select k.payment_id, null::smallint as number, k.provider_id, p.endpoint_id, p.chain_id, k.payer, k.accepted_at
    from ${table} k left join payment p on p.id = k.payment_id where ${condition}
  )`
  const queued = (condition: Fragment) => placed(sql`queue`, sql`${isShown(sql, 'k')} and ${condition}`)
  const ended = (condition: Fragment) => placed(sql`outcome`, condition)
  const payments = (condition: Fragment) => sql`(
    select payment_id, null::smallint as number, provider_id, endpoint_id, chain_id, payer, accepted_at
    from (select *, id as payment_id from payment) k where ${condition}
  )`
  // Sales on a tab, with its stage in the row `q` and its end in `k`.
  const sold = (condition: Fragment) => sql`(
    select s.payment_id, s.number, s.provider_id, s.endpoint_id, s.chain_id, s.payer, s.accepted_at
    from tab_sale s
    left join queue q on q.payment_id = s.payment_id
    left join outcome k on k.payment_id = s.payment_id
    where ${condition}
  )`
  const isOpen = sql`s.arrived is null`
  const isExceptional = sql`s.is_exceptional`
  const hasArrived = hasSettled(sql, sql`k.payment_id`)
  const tabHasArrived = hasSettled(sql, sql`s.payment_id`)
  const spent = sql`k.kind = 'spent' and k.final_at is null and ${hasArrived} is null`
  const hasRunOut = sql`valid_before <= ${Math.floor(now.getTime() / 1000)}`
  const expired = sql`k.${hasRunOut}`
  const byStatus = (): [own: Fragment[], ofTabs: Fragment[]] => {
    switch (status) {
      case 'settled':
        return [[payments(hasArrived)], [sold(tabHasArrived)]]
      case 'partially_settled':
        return [
          [queued(hasArrived), ended(sql`k.is_partial`), ended(sql`k.final_at is null and ${hasArrived}`)],
          [sold(sql`${isOpen} and ${tabHasArrived}`), sold(sql`${isExceptional} and k.is_partial`)],
        ]
      case 'voided':
        return [
          [ended(sql`k.kind = 'voided'`)],
          [isOpen, isExceptional].map((where) => sold(sql`${where} and k.kind = 'voided'`)),
        ]
      case 'failed':
        return [
          [
            ended(sql`k.kind = 'failed'`),
            // It has expired, and the keeper hasn't concluded it yet.
            queued(expired),
            ended(sql`${spent} and ${expired}`),
          ],
          [
            sold(sql`${isOpen} and (k.kind = 'failed' or q.${hasRunOut} or (${spent} and ${expired}))`),
            sold(sql`${isExceptional} and k.kind = 'failed'`),
          ],
        ]
      case 'retrying':
        return [
          [queued(sql`k.attempts > 0`), ended(spent)],
          [sold(sql`${isOpen} and (q.attempts > 0 or (${spent}))`)],
        ]
      case 'verified':
        return [
          [queued(isFresh(sql, 'k')), ended(spent)],
          [sold(sql`${isOpen} and (${isFresh(sql)} or (${spent}))`)],
        ]
      case 'settling':
        return [[queued(isSent(sql, 'k'))], [sold(sql`${isOpen} and ${isSent(sql)}`)]]
      default:
        return [[payments(sql`true`)], [sold(sql`true`)]]
    }
  }
  const [own, ofTabs] = byStatus()
  return withoutTabs ? own : [...own, ...ofTabs]
}

/** The first rows of all searches, in one order. Rows with other statuses leave the database only if they end a search. */
async function readPayments(sql: Database, filters: PaymentFilters, limit: number): Promise<Row[]> {
  const { providerId, status, endpointId, chainId, payer, from, to, txHash, after } = filters
  const { minAmount, maxAmount } = filters
  const [direction, isAfter] = filters.oldestFirst ? [sql`asc`, sql`>`] : [sql`desc`, sql`<`]
  const order = sql`accepted_at ${direction}, payment_id ${direction}, number ${direction}`
  const searches = candidates(sql, filters).map(
    (table) => sql`(
      select payment_id, number, accepted_at, row_number() over (order by ${order}) = ${limit} as is_last
      from ${table} candidate
      where provider_id = ${providerId}
        ${endpointId === undefined ? sql`` : sql`and endpoint_id = ${endpointId}`}
        ${chainId === undefined ? sql`` : sql`and chain_id = ${chainId}`}
        ${payer === undefined ? sql`` : sql`and payer = ${payer}`}
        ${from === undefined ? sql`` : sql`and accepted_at >= ${from}`}
        ${to === undefined ? sql`` : sql`and accepted_at < ${to}`}
        ${txHash === undefined ? sql`` : sql`and payment_id = any(${settledBy(sql, txHash)})`}
        ${
          after === null
            ? sql``
            : sql`and (accepted_at, payment_id, coalesce(number, 0)) ${isAfter}
              (${after.acceptedAt}, ${after.paymentId}, ${after.sale ?? 0})`
        }
      order by ${order}
      limit ${limit}
    )`,
  )
  const amount = sql`coalesce(s.provider_amount + s.fee_amount, p.provider_amount + p.fee_amount)`
  return sql<Row[]>`
    with page as materialized (${searches.reduce((all, search) => sql`${all} union all ${search}`)})
    select p.id as "paymentId", p.request_id as "requestId", p.source, coalesce(s.endpoint_id, p.endpoint_id) as "endpointId",
      p.chain_id as "chainId", p.payer, coalesce(s.payee, p.payee) as "payTo",
      coalesce(s.provider_amount, p.provider_amount) as "providerUsdc", coalesce(s.fee_amount, p.fee_amount) as "platformUsdc",
      ${amount} as "totalUsdc",
      tab.tab_id as "tabId", s.number as sale, s.requests, p.tier, coalesce(sold.url, p.resource) as resource,
      page.accepted_at as "acceptedAt", page.is_last as "isLast", standing.status as payment_status, standing.attempts,
      standing.next_attempt_at as "nextAttemptAt", standing.failure_code as "failureCode", standing.failed_at as "failedAt",
      standing.voided_at as "voidedAt", moved.*, case when s.number is null then p.splitter end as splitter,
      payout.tx_hash as "payoutTransactionHash", payout.block_time as "paidOutAt",
      (
        select coalesce(sum(h.value), 0) from refund r join ${halves(sql)} h on h.payment_id = r.payment_id
        where r.of_payment_id = p.id and h.state = 'settled'
      ) as "refundedUsdc"
    from page join payment p on p.id = page.payment_id
    left join tab_sale s on s.payment_id = page.payment_id and s.number = page.number
    left join tab_payment tab on tab.payment_id = s.payment_id
    left join endpoint sold on sold.id = s.endpoint_id
    cross join lateral ${standingOf(sql, filters.now)} standing
    cross join lateral ${movedOf(sql)} moved
    left join lateral ${payoutOf(sql)} payout on true
    where page.is_last or (
      ${status === undefined ? sql`true` : sql`standing.status = ${status}`}
      ${minAmount === undefined ? sql`` : sql`and ${amount} >= ${minAmount}`}
      ${maxAmount === undefined ? sql`` : sql`and ${amount} <= ${maxAmount}`}
      ${txHash === undefined ? sql`` : sql`and (s.number is null or moved."transactionHash" is not null)`}
    )
    order by page.accepted_at ${direction}, page.payment_id ${direction}, page.number ${direction}`
}

/** The part of the payment `p`, `standing` there, or of a tab's sale `s` that has moved: a lateral subquery of just one row. */
function movedOf(sql: Queryable) {
  return sql`(
    select standing.provider_tx as "transactionHash", standing.fee_tx as "platformTransactionHash",
      standing.provider_time as "settledAt",
      case when standing.provider_tx is null then 0 else p.provider_amount end as "settledUsdc",
      case when standing.fee_tx is null then 0 else p.fee_amount end as "settledFeeUsdc"
    where s.number is null
    union all
    select used.tx_hash, used.tx_hash, used.block_time, share.settled_net, share.settled_fee
    from arrived_of_sale(s.payment_id, s.position, s.number, s.provider_amount + s.fee_amount, standing.provider) reach
    cross join lateral sale_share(s.requests, s.provider_amount, s.fee_amount, false, coalesce(s.arrived, reach.arrived),
      coalesce(s.lost_fee_share, reach.lost_fee_share)) share
    left join lateral (
      select h.tx_hash, h.block_time from ${halves(sql)} h
      where h.payment_id = s.payment_id and h.half = 0 and coalesce(s.arrived, reach.arrived) > 0
    ) used on true
  )`
}

/** An array of the payments that a transaction moved, which are few and looked up one by one. */
function settledBy(sql: Queryable, txHash: Hex) {
  return sql`array(select payment_id from authorization_event
    where left(tx_hash, 10) = left(${txHash}, 10) and tx_hash = ${txHash} and (state = 'settled' or exists (
      select from tab_line l where l.payment_id = authorization_event.payment_id and l.moved > 0
    )))`
}
