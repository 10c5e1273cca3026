import type { Address, Hex } from 'viem'
import type { Database, Queryable } from '#ledger/database'
import { bothHalves, type HalfState, halves } from '#ledger/halves'
import { paymentStatus } from '#ledger/paymentStatus'
import { payoutOf } from '#ledger/payouts'
import type { PaymentStatus } from '#protocol/paymentStatus'
import type { PaymentSource } from './payments.ts'

export type ProviderPayment = {
  paymentId: string
  requestId: string
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
  /** Of the provider's half; null while it isn't indexed. */
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
  /** Of which a half settled in this transaction. */
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
  /** Its search ended with it, and may have more. */
  isLast: boolean
  providerState: HalfState
  feeState: HalfState | null
  isSettling: boolean
  validBefore: bigint
}

const rowsLookedAt = 5_000

/**
 * A provider's payments, newest or oldest first.
 *
 * A status is the chain's business and stands in no column. So the filter takes what could have it, by an index, and
 * then asks what each of them is; rows that turn out otherwise are bounded a page.
 */
export async function findProviderPayments(sql: Database, filters: PaymentFilters): Promise<PaymentPage> {
  const { status, limit } = filters
  const inOrder = filters.oldestFirst ? (a: Row, b: Row) => newestFirst(b, a) : newestFirst
  const payments: ProviderPayment[] = []
  let { after } = filters
  let chunk = limit + 1
  for (let looked = 0; looked < rowsLookedAt; looked += chunk, chunk = Math.min(chunk * 4, 1_000)) {
    const found = await Promise.all(
      searches(sql, filters, chunk).map((search) => readPayments(sql, { ...filters, after }, search)),
    )
    // Beyond where the first of the searches stopped, it may have payments that come before those of the others.
    const end = found
      .map((rows) => rows.find((row) => row.isLast))
      .filter((row) => row !== undefined)
      .sort(inOrder)[0]
    for (const row of found.flat().sort(inOrder)) {
      if (end && inOrder(row, end) > 0) break
      const payment = toPayment(row, filters.now)
      if (status !== undefined && payment.status !== status) continue
      if (payments.length === limit) return { payments, next: positionOf(payments) }
      payments.push(payment)
    }
    if (end === undefined) return { payments, next: null }
    after = { acceptedAt: end.acceptedAt, paymentId: end.paymentId }
  }
  return { payments, next: after }
}

function positionOf(payments: ProviderPayment[]): PaymentPosition | null {
  const last = payments.at(-1)
  return last ? { acceptedAt: last.acceptedAt, paymentId: last.paymentId } : null
}

function toPayment(
  { isLast: _, providerState, feeState, isSettling, validBefore, ...payment }: Row,
  now: Date,
): ProviderPayment {
  const status = paymentStatus({
    provider: providerState,
    fee: feeState,
    isSettling,
    attempts: payment.attempts,
    isFailed: payment.failedAt !== null || Number(validBefore) * 1000 <= now.getTime(),
    isVoided: payment.voidedAt !== null,
  })
  return { ...payment, status }
}

/** Payments that could have a status, by an index that is in the order of the page. */
type Search = {
  candidates: ReturnType<typeof all>
  /** What the index must show of a candidate besides: others don't leave the database. */
  seen: ReturnType<typeof all>
  limit: number
}

function all(sql: Queryable) {
  return sql`true`
}

/** Of payments that aren't in the sums, only a look at the chain tells what they are: so many at once. */
const undecidedAtOnce = 1_000

/** What is concluded has a status for good, what isn't may get it at any time: different indexes, so two searches. */
function searches(sql: Queryable, { status, now }: PaymentFilters, limit: number): Search[] {
  const search = (candidates: Search['candidates'], seen = all(sql), atOnce = limit) => ({
    candidates,
    seen,
    limit: atOnce,
  })
  const undecided = (seen: Search['seen']) => search(sql`p.summarised is null`, seen, undecidedAtOnce)
  switch (status) {
    case 'settled':
      return [
        search(sql`(p.summarised in (3, 7) or (p.summarised in (1, 5) and p.fee_amount = 0))`),
        undecided(sql`half.provider = 'settled' and coalesce(half.fee, 'settled') = 'settled'`),
      ]
    case 'partially_settled':
      return [
        search(sql`p.summarised in (1, 2, 5, 6) and p.fee_amount > 0`),
        undecided(sql`(half.provider = 'settled') <> (half.fee = 'settled')`),
      ]
    case 'voided':
      return [search(sql`p.voided_at is not null`)]
    case 'failed':
      return [
        search(sql`p.first_failed_at is not null and (p.concluded_at is null or p.failed_at is not null)`),
        // Ran out, and the keeper hasn't come to say so yet.
        search(sql`p.concluded_at is null and p.first_failed_at is null
          and p.valid_before <= ${Math.floor(now.getTime() / 1000)}`),
      ]
    case 'retrying':
      return [
        search(sql`p.first_failed_at is not null and (p.concluded_at is null or p.failed_at is not null)`),
      ]
    case 'verified':
    case 'settling':
      return [search(sql`p.concluded_at is null`)]
    default:
      return [search(all(sql))]
  }
}

function newestFirst(a: Row, b: Row): number {
  return b.acceptedAt.getTime() - a.acceptedAt.getTime() || (a.paymentId < b.paymentId ? 1 : -1)
}

async function readPayments(
  sql: Database,
  filters: PaymentFilters,
  { candidates, seen, limit }: Search,
): Promise<Row[]> {
  const { providerId, endpointId, chainId, payer, from, to, txHash, after, oldestFirst = false } = filters
  const order = oldestFirst ? sql`p.accepted_at, p.id` : sql`p.accepted_at desc, p.id desc`
  const isAfter = oldestFirst ? sql`>` : sql`<`
  return sql<Row[]>`
    with page as materialized (
      select id, request_id, source, endpoint_id, chain_id, payer, payee, fee_recipient, splitter, provider_amount, fee_amount,
        tier, resource,
        accepted_at, attempts, next_attempt_at, failure_code, failed_at, voided_at, valid_before, concluded_at, refunded_amount,
        row_number() over (order by ${order}) = ${limit} as is_last
      from payment p
      where p.provider_id = ${providerId} and ${candidates}
        ${endpointId === undefined ? sql`` : sql`and p.endpoint_id = ${endpointId}`}
        ${chainId === undefined ? sql`` : sql`and p.chain_id = ${chainId}`}
        ${payer === undefined ? sql`` : sql`and p.payer = ${payer}`}
        ${from === undefined ? sql`` : sql`and p.accepted_at >= ${from}`}
        ${to === undefined ? sql`` : sql`and p.accepted_at < ${to}`}
        ${txHash === undefined ? sql`` : sql`and p.id in ${paymentsOf(sql, providerId, txHash)}`}
        ${after === null ? sql`` : sql`and (p.accepted_at, p.id) ${isAfter} (${after.acceptedAt}, ${after.paymentId})`}
      order by ${order}
      limit ${limit}
    )
    select p.id as "paymentId", p.request_id as "requestId", p.source, p.endpoint_id as "endpointId", p.chain_id as "chainId",
      p.payer, p.payee as "payTo", p.provider_amount as "providerAmount", p.fee_amount as "feeAmount", p.tier, p.resource,
      p.accepted_at as "acceptedAt", p.attempts, p.next_attempt_at as "nextAttemptAt",
      p.failure_code as "failureCode", p.failed_at as "failedAt", p.voided_at as "voidedAt",
      p.valid_before as "validBefore", p.is_last as "isLast",
      half.provider as "providerState", half.fee as "feeState", half.provider_tx as "txHash",
      half.fee_tx as "feeTxHash", half.provider_time as "settledTime",
      p.splitter, payout.tx_hash as "payoutTxHash", payout.block_time as "payoutTime",
      case when p.refunded_amount is null then 0 else (
        select coalesce(sum(h.value), 0) from refund r join ${halves(sql)} h on h.payment_id = r.payment_id
        where r.of_payment_id = p.id and h.state = 'settled'
      ) end as "refundedAmount",
      p.concluded_at is null and exists (
        select from batch_item i join batch b on b.id = i.batch_id
        where i.payment_id = p.id and i.active and b.state not in ('claimed', 'closed')
      ) as "isSettling"
    from page p
    cross join lateral ${bothHalves(sql)} half
    left join lateral ${payoutOf(sql)} payout on true
    where p.is_last or (${seen})
    order by ${order}`
}

/** The payments that a transaction moved a half of: by the index, and by what was sent straight to USDC. */
function paymentsOf(sql: Queryable, providerId: string, txHash: Hex) {
  return sql`(
    select a.payment_id
    from (
      select chain_id, token, authorizer, nonce from indexer.authorization
      where tx_hash = ${txHash} and chain_id in (select chain_id from wallet where provider_id = ${providerId})
      union
      select chain_id, token, authorizer, nonce from evidence where tx_hash = ${txHash}
    ) used
    join signed_authorization a on a.chain_id = used.chain_id and a.token = used.token
      and a.authorizer = used.authorizer and a.nonce = used.nonce
  )`
}
