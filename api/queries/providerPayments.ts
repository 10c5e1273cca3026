import type { Address, Hex } from 'viem'
import { paymentStatus } from '#keeper/domain/paymentStatus'
import type { Database, Queryable } from '#keeper/store/database'
import { type HalfState, halves } from '#keeper/store/halves'
import type { PaymentStatus } from '#protocol/paymentStatus'

export type ProviderPayment = {
  paymentId: string
  requestId: string
  status: PaymentStatus
  endpointId: string
  chainId: number
  payer: Address
  payTo: Address
  /** Base units, as signed. */
  net: bigint
  fee: bigint
  tier: string
  resource: string
  acceptedAt: Date
  /** Of the provider's half; null while it isn't indexed. */
  txHash: Hex | null
  feeTxHash: Hex | null
  /** Unix seconds. */
  settledTime: bigint | null
  attempts: number
  nextAttemptAt: Date | null
  failureCode: string | null
  failedAt: Date | null
  voidedAt: Date | null
}

/** Where a page ended: newest first. */
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
  /** Decides whether an authorization that nobody used has run out. */
  now: Date
}

export type PaymentPage = {
  payments: ProviderPayment[]
  /** Null on the last page. A page may hold fewer payments than asked for and still have a next one. */
  next: PaymentPosition | null
}

type Row = Omit<ProviderPayment, 'status'> & {
  providerState: HalfState
  feeState: HalfState | null
  isSettling: boolean
  validBefore: bigint
}

const rowsLookedAt = 5_000

/**
 * A provider's payments, newest first.
 *
 * A status is the chain's business and stands in no column. So the filter takes what could have it, by an index, and
 * then asks what each of them is; rows that turn out otherwise are bounded a page.
 */
export async function findProviderPayments(
  sql: Database,
  indexerSchema: string,
  filters: PaymentFilters,
): Promise<PaymentPage> {
  const { status, limit } = filters
  const payments: ProviderPayment[] = []
  let { after } = filters
  let chunk = limit + 1
  for (let looked = 0; looked < rowsLookedAt; looked += chunk, chunk = Math.min(chunk * 4, 1_000)) {
    const rows = await readPayments(sql, indexerSchema, { ...filters, after, limit: chunk })
    for (const row of rows) {
      const payment = toPayment(row, filters.now)
      if (status === undefined || payment.status === status) {
        if (payments.length === limit) return { payments, next: positionOf(payments) }
        payments.push(payment)
      }
      after = { acceptedAt: payment.acceptedAt, paymentId: payment.paymentId }
    }
    if (rows.length < chunk) return { payments, next: null }
  }
  return { payments, next: after }
}

function positionOf(payments: ProviderPayment[]): PaymentPosition | null {
  const last = payments.at(-1)
  return last ? { acceptedAt: last.acceptedAt, paymentId: last.paymentId } : null
}

function toPayment(
  { providerState, feeState, isSettling, validBefore, ...payment }: Row,
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

/** What a payment with this status must have; each has an index that is in the order of the page. */
function candidates(sql: Queryable, status: PaymentStatus | undefined) {
  switch (status) {
    case 'voided':
      return sql`and p.voided_at is not null`
    case 'failed':
    case 'retrying':
      return sql`and p.first_failed_at is not null and (p.concluded_at is null or p.failed_at is not null)`
    case 'verified':
    case 'settling':
      return sql`and p.concluded_at is null`
    default:
      return sql``
  }
}

async function readPayments(sql: Database, indexerSchema: string, filters: PaymentFilters): Promise<Row[]> {
  // One half arrived and the other never will, or it may still: two indexes, so two searches.
  if (filters.status === 'partially_settled') {
    const [past, present] = await Promise.all([
      readWhere(sql, indexerSchema, filters, sql`and p.summarised in (1, 2, 5, 6) and p.fee_amount > 0`),
      readWhere(sql, indexerSchema, filters, sql`and p.summarised is null`),
    ])
    return [...past, ...present].sort(newestFirst).slice(0, filters.limit)
  }
  return readWhere(sql, indexerSchema, filters, candidates(sql, filters.status))
}

function newestFirst(a: Row, b: Row): number {
  return b.acceptedAt.getTime() - a.acceptedAt.getTime() || (a.paymentId < b.paymentId ? 1 : -1)
}

async function readWhere(
  sql: Database,
  indexerSchema: string,
  filters: PaymentFilters,
  condition: ReturnType<typeof candidates>,
): Promise<Row[]> {
  const { providerId, endpointId, chainId, payer, from, to, txHash, after, limit } = filters
  return sql<Row[]>`
    with page as materialized (
      select p.* from payment p
      where p.provider_id = ${providerId} ${condition}
        ${endpointId === undefined ? sql`` : sql`and p.endpoint_id = ${endpointId}`}
        ${chainId === undefined ? sql`` : sql`and p.chain_id = ${chainId}`}
        ${payer === undefined ? sql`` : sql`and p.payer = ${payer}`}
        ${from === undefined ? sql`` : sql`and p.accepted_at >= ${from}`}
        ${to === undefined ? sql`` : sql`and p.accepted_at < ${to}`}
        ${txHash === undefined ? sql`` : sql`and p.id in ${paymentsOf(sql, indexerSchema, providerId, txHash)}`}
        ${after === null ? sql`` : sql`and (p.accepted_at, p.id) < (${after.acceptedAt}, ${after.paymentId})`}
      order by p.accepted_at desc, p.id desc
      limit ${limit}
    )
    select p.id as "paymentId", p.request_id as "requestId", p.endpoint_id as "endpointId", p.chain_id as "chainId",
      p.payer, p.payee as "payTo", p.provider_amount as net, p.fee_amount as fee, p.tier, p.resource,
      p.accepted_at as "acceptedAt", p.attempts, p.next_attempt_at as "nextAttemptAt",
      p.failure_code as "failureCode", p.failed_at as "failedAt", p.voided_at as "voidedAt",
      p.valid_before as "validBefore",
      provider.state as "providerState", fee.state as "feeState",
      case when provider.state = 'settled' then provider.tx_hash end as "txHash",
      case when fee.state = 'settled' then fee.tx_hash end as "feeTxHash",
      case when provider.state = 'settled' then provider.block_time end as "settledTime",
      p.concluded_at is null and exists (
        select from batch_item i join batch b on b.id = i.batch_id
        where i.payment_id = p.id and i.active and b.state not in ('claimed', 'closed')
      ) as "isSettling"
    from page p
    cross join lateral (
      select state, tx_hash, block_time from ${halves(sql, indexerSchema)} h where h.payment_id = p.id and h.half = 0
    ) provider
    left join lateral (
      select state, tx_hash from ${halves(sql, indexerSchema)} h where h.payment_id = p.id and h.half = 1
    ) fee on true
    order by p.accepted_at desc, p.id desc`
}

/** The payments that a transaction moved a half of: by the index, and by what was sent straight to USDC. */
function paymentsOf(sql: Queryable, indexerSchema: string, providerId: string, txHash: Hex) {
  return sql`(
    select a.payment_id
    from (
      select chain_id, token, authorizer, nonce from ${sql(indexerSchema)}.authorization
      where tx_hash = ${txHash} and chain_id in (select chain_id from wallet where provider_id = ${providerId})
      union
      select chain_id, token, authorizer, nonce from evidence where tx_hash = ${txHash}
    ) used
    join signed_authorization a on a.chain_id = used.chain_id and a.token = used.token
      and a.authorizer = used.authorizer and a.nonce = used.nonce
  )`
}
