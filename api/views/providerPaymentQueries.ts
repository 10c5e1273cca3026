import type { Address, Hex } from 'viem'
import { halves, hasSettled } from '#ledger/facts/halves'
import { payoutOf } from '#ledger/facts/payouts'
import { isFresh, isSent, isShown, standingOf } from '#ledger/queue/stages'
import type { Database, Queryable } from '#ledger/store/database'
import type { PaymentStatus } from '#protocol/paymentStatus'
import type { PaymentSource } from '../payments/records/payments.ts'

export type ProviderPayment = {
  paymentId: string
  /** Null: came through the facilitator. */
  requestId: string | null
  status: PaymentStatus
  source: PaymentSource
  /** Null: came through the facilitator. */
  endpointId: string | null
  chainId: number
  payer: Address
  payTo: Address
  /** Base units, as signed. */
  providerAmount: bigint
  feeAmount: bigint
  tier: string
  resource: string
  acceptedAt: Date
  /** Of the provider's half; null while it isn't recorded. */
  txHash: Hex | null
  feeTxHash: Hex | null
  /** Unix seconds. */
  settledTime: bigint | null
  /** Whom one authorization pays for both parts. */
  splitter: Address | null
  /** Where the splitter paid them out; null: not yet. */
  payoutTxHash: Hex | null
  payoutTime: bigint | null
  attempts: number
  nextAttemptAt: Date | null
  failureCode: string | null
  failedAt: Date | null
  voidedAt: Date | null
  /** What has arrived of its refunds. */
  refundedAmount: bigint
  /** What its provider owes for it, where the facilitator brought it. */
  facilitatorFee: bigint
}

/** Where a page ended. */
export type PaymentPosition = { acceptedAt: Date; paymentId: string }

export type PaymentFilters = {
  providerId: string
  status?: PaymentStatus | undefined
  endpointId?: string | undefined
  chainId?: number | undefined
  payer?: Address | undefined
  /** Accepted in [from, to). */
  from?: Date | undefined
  to?: Date | undefined
  /** What the buyer paid, both parts, base units. */
  minAmount?: bigint | undefined
  maxAmount?: bigint | undefined
  /** Only payments of which a half settled in this transaction. */
  txHash?: Hex | undefined
  after: PaymentPosition | null
  limit: number
  /** Default: the newest first. */
  oldestFirst?: boolean
  /** Decides whether an authorization that nobody used has run out. */
  now: Date
}

export type PaymentPage = {
  payments: ProviderPayment[]
  /** Null on the last page. A page may hold fewer payments than asked for and still have a next one. */
  next: PaymentPosition | null
}

type Row = Omit<ProviderPayment, 'status'> & {
  /** Null: it is only reserved. */
  status: PaymentStatus | null
  /** A search ended with it, and may have more. */
  isLast: boolean
}

const rowsLookedAt = 5_000

/**
 * A provider's payments, newest or oldest first.
 *
 * A status is partly the chain's business and stands in no column. So the filter takes what could have it, by an index, and
 * then asks what each of them is; rows that turn out otherwise are bounded a page. So are those of another amount, of which
 * there is no index either.
 */
export async function findProviderPayments(sql: Database, filters: PaymentFilters): Promise<PaymentPage> {
  const { limit } = filters
  const payments: ProviderPayment[] = []
  let { after } = filters
  let chunk = limit + 1
  for (let looked = 0; looked < rowsLookedAt; looked += chunk, chunk = Math.min(chunk * 4, 1_000)) {
    const rows = await readPayments(sql, { ...filters, after }, chunk)
    // A search that stopped first may have payments beyond that point which come before those of the others.
    const end = rows.find(({ isLast }) => isLast)
    for (const row of end ? rows.slice(0, rows.indexOf(end) + 1) : rows) {
      if (!isWanted(row, filters)) continue
      if (payments.length === limit) return { payments, next: positionOf(payments.at(-1)) }
      payments.push(row)
    }
    after = positionOf(end)
    if (after === null) break
  }
  return { payments, next: after }
}

function isWanted(
  row: Row,
  { status, minAmount = 0n, maxAmount }: PaymentFilters,
): row is Row & ProviderPayment {
  const amount = row.providerAmount + row.feeAmount
  if (amount < minAmount || (maxAmount !== undefined && amount > maxAmount)) return false
  return row.status !== null && (status === undefined || row.status === status)
}

function positionOf(payment: PaymentPosition | undefined): PaymentPosition | null {
  return payment ? { acceptedAt: payment.acceptedAt, paymentId: payment.paymentId } : null
}

type Fragment = ReturnType<typeof settledBy>

/**
 * Where payments of a status can be: tables of which an index of each is in the order of the page. What the filters ask
 * of the payment itself is joined, and costs nothing where they don't.
 */
function candidates(sql: Queryable, { status, now }: PaymentFilters) {
  const placed = (table: Fragment, condition: Fragment) => sql`(
    select k.payment_id, k.provider_id, p.endpoint_id, p.chain_id, k.payer, k.accepted_at
    from ${table} k left join payment p on p.id = k.payment_id where ${condition}
  )`
  const queued = (condition: Fragment) => placed(sql`queue`, sql`${isShown(sql, 'k')} and ${condition}`)
  const ended = (condition: Fragment) => placed(sql`outcome`, condition)
  const payments = (condition: Fragment) => sql`(
    select payment_id, provider_id, endpoint_id, chain_id, payer, accepted_at
    from (select *, id as payment_id from payment) k where ${condition}
  )`
  const hasArrived = hasSettled(sql, sql`k.payment_id`)
  const spent = sql`k.kind = 'spent' and k.final_at is null and ${hasArrived} is null`
  const expired = sql`k.valid_before <= ${Math.floor(now.getTime() / 1000)}`
  switch (status) {
    case 'settled':
      return [payments(hasArrived)]
    case 'partially_settled':
      return [queued(hasArrived), ended(sql`k.is_partial`), ended(sql`k.final_at is null and ${hasArrived}`)]
    case 'voided':
      return [ended(sql`k.kind = 'voided'`)]
    case 'failed':
      return [
        ended(sql`k.kind = 'failed'`),
        // Ran out, and the keeper hasn't come to say so yet.
        queued(expired),
        ended(sql`${spent} and ${expired}`),
      ]
    case 'retrying':
      return [queued(sql`k.attempts > 0`), ended(spent)]
    case 'verified':
      return [queued(isFresh(sql, 'k')), ended(spent)]
    case 'settling':
      return [queued(isSent(sql, 'k'))]
    default:
      return [payments(sql`true`)]
  }
}

/** The first of each search, in one order. Of other statuses only those that end a search leave the database. */
async function readPayments(sql: Database, filters: PaymentFilters, limit: number): Promise<Row[]> {
  const { providerId, status, endpointId, chainId, payer, from, to, txHash, after } = filters
  const { minAmount, maxAmount } = filters
  const [direction, isAfter] = filters.oldestFirst ? [sql`asc`, sql`>`] : [sql`desc`, sql`<`]
  const order = sql`accepted_at ${direction}, payment_id ${direction}`
  const searches = candidates(sql, filters).map(
    (table) => sql`(
      select payment_id, accepted_at, row_number() over (order by ${order}) = ${limit} as is_last
      from ${table} candidate
      where provider_id = ${providerId}
        ${endpointId === undefined ? sql`` : sql`and endpoint_id = ${endpointId}`}
        ${chainId === undefined ? sql`` : sql`and chain_id = ${chainId}`}
        ${payer === undefined ? sql`` : sql`and payer = ${payer}`}
        ${from === undefined ? sql`` : sql`and accepted_at >= ${from}`}
        ${to === undefined ? sql`` : sql`and accepted_at < ${to}`}
        ${txHash === undefined ? sql`` : sql`and payment_id = any(${settledBy(sql, txHash)})`}
        ${after === null ? sql`` : sql`and (accepted_at, payment_id) ${isAfter} (${after.acceptedAt}, ${after.paymentId})`}
      order by ${order}
      limit ${limit}
    )`,
  )
  return sql<Row[]>`
    with page as materialized (${searches.reduce((all, search) => sql`${all} union all ${search}`)})
    select p.id as "paymentId", p.request_id as "requestId", p.source, p.endpoint_id as "endpointId", p.chain_id as "chainId",
      p.payer, p.payee as "payTo", p.provider_amount as "providerAmount", p.fee_amount as "feeAmount", p.tier, p.resource,
      page.accepted_at as "acceptedAt", page.is_last as "isLast", standing.status, standing.attempts,
      standing.next_attempt_at as "nextAttemptAt", standing.failure_code as "failureCode", standing.failed_at as "failedAt",
      standing.voided_at as "voidedAt", standing.provider_tx as "txHash", standing.fee_tx as "feeTxHash",
      standing.provider_time as "settledTime", p.splitter, payout.tx_hash as "payoutTxHash", payout.block_time as "payoutTime",
      (
        select coalesce(sum(h.value), 0) from refund r join ${halves(sql)} h on h.payment_id = r.payment_id
        where r.of_payment_id = p.id and h.state = 'settled'
      ) as "refundedAmount",
      coalesce((select fee from facilitation f where f.payment_id = p.id), 0) as "facilitatorFee"
    from page join payment p on p.id = page.payment_id
    cross join lateral ${standingOf(sql, filters.now)} standing
    left join lateral ${payoutOf(sql)} payout on true
    where page.is_last or (
      ${status === undefined ? sql`true` : sql`standing.status = ${status}`}
      ${minAmount === undefined ? sql`` : sql`and p.provider_amount + p.fee_amount >= ${minAmount}`}
      ${maxAmount === undefined ? sql`` : sql`and p.provider_amount + p.fee_amount <= ${maxAmount}`}
    )
    order by page.accepted_at ${direction}, page.payment_id ${direction}`
}

/** The payments of which a transaction settled a half: an array, which are few and looked up one by one. */
function settledBy(sql: Queryable, txHash: Hex) {
  return sql`array(select payment_id from authorization_event
    where left(tx_hash, 10) = left(${txHash}, 10) and tx_hash = ${txHash} and state = 'settled')`
}
