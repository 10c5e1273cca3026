import { isDead } from '@tollkeeper/ledger/acceptance/refunds'
import { type HalfState, halves } from '@tollkeeper/ledger/facts/halves'
import { paymentPosition } from '@tollkeeper/ledger/queue/stages'
import type { Queryable } from '@tollkeeper/ledger/store/database'
import { isTestnet } from '@tollkeeper/ledger/store/networks'
import type { PaymentStatus } from '@tollkeeper/sdk/protocol/paymentStatus'
import type { Address, Hash, Hex } from 'viem'

/** A refund's statuses. It has one authorization, and can't be voided. */
export const refundStatuses = ['verified', 'settling', 'settled', 'retrying', 'failed'] as const
export type RefundStatus = (typeof refundStatuses)[number]

/** A refund in its current state: what was accepted, and what the record shows of it. */
export type RefundRecord = {
  /** The refund's own id in the database. */
  id: string
  /** The payment that is refunded. */
  paymentId: string
  /** Its number among the payment's refunds, starting at 1. */
  number: number
  chainId: number
  status: RefundStatus
  from: Address
  to: Address
  /** USDC base units. */
  value: bigint
  nonce: Hex
  /** Unix seconds. */
  validBefore: bigint
  acceptedAt: Date
  attempts: number
  nextAttemptAt: Date | null
  failureCode: string | null
  /** Whether it failed and can't move any more, so that its amount may be refunded again. */
  isDead: boolean
  txHash: Hash | null
  blockNumber: bigint | null
  blockHash: Hash | null
  /** Unix seconds. */
  settledTime: bigint | null
}

type Row = Omit<RefundRecord, 'status'> & { status: PaymentStatus; state: HalfState }

/** Reads the refunds of payments, ordered by payment and number. */
export async function readRefunds(
  sql: Queryable,
  paymentIds: readonly string[],
  now: Date,
): Promise<RefundRecord[]> {
  if (paymentIds.length === 0) return []
  return readRows(sql, sql`r.of_payment_id in ${sql(paymentIds)}`, sql`r.of_payment_id, r.number`, now)
}

/** Finds a provider's refunds requested in [from, to), oldest first, after the last refund of the previous page. */
export async function findProviderRefunds(
  sql: Queryable,
  { providerId, from, to }: { providerId: string; from: Date; to: Date },
  { after, limit, now }: { after: RefundPosition | null; limit: number; now: Date },
): Promise<RefundRecord[]> {
  return readRows(
    sql,
    sql`r.provider_id = ${providerId} and r.accepted_at >= ${from} and r.accepted_at < ${to}
      ${after === null ? sql`` : sql`and (r.accepted_at, r.of_payment_id, r.number) > (${after.acceptedAt}, ${after.paymentId}, ${after.number})`}`,
    sql`r.accepted_at, r.of_payment_id, r.number limit ${limit}`,
    now,
  )
}

/** A provider's refunds on one chain; amounts in base units. */
export type RefundSums = {
  chainId: number
  /** Number of refunds. Refunds that failed and can't move any more aren't counted. */
  refunds: number
  /** Sums of these refunds: `refunded` has arrived, and `outstanding` can still arrive. */
  refunded: bigint
  outstanding: bigint
}

/** Sums a provider's refunds requested in [from, to), by chain. */
export async function sumRefunds(sql: Queryable, period: RefundPeriod): Promise<RefundSums[]> {
  return sql<RefundSums[]>`
    select chain_id as "chainId", count(*) filter (where not is_dead)::int as refunds,
      coalesce(sum(value) filter (where state = 'settled'), 0) as refunded,
      coalesce(sum(value) filter (where state <> 'settled' and not is_dead), 0) as outstanding
    from ${refundsOf(sql, period)} refund
    group by chain_id`
}

/** Sums a provider's arrived refunds that were requested in [from, to), by the endpoint of the refunded payment. */
export async function sumRefundsByEndpoint(
  sql: Queryable,
  { testnet, chainId, ...period }: RefundPeriod & { testnet: boolean; chainId?: number | undefined },
): Promise<{ endpointId: string | null; refunded: bigint }[]> {
  return sql<{ endpointId: string | null; refunded: bigint }[]>`
    select paid.endpoint_id as "endpointId", sum(refund.value) as refunded
    from ${refundsOf(sql, period)} refund join payment paid on paid.id = refund.of_payment_id
    where refund.state = 'settled' and ${isTestnet(sql, sql`refund.chain_id`)} = ${testnet}
      ${chainId === undefined ? sql`` : sql`and refund.chain_id = ${chainId}`}
    group by 1`
}

type RefundPeriod = { providerId: string; from: Date; to: Date }

function refundsOf(sql: Queryable, { providerId, from, to }: RefundPeriod) {
  return sql`(
    select r.of_payment_id, p.chain_id, p.provider_amount as value, half.state,
      r.released_at is not null or (${isDead(sql)}) as is_dead
    from refund r join payment p on p.id = r.payment_id
    cross join lateral (select state from ${halves(sql)} h where h.payment_id = p.id) half
    where r.provider_id = ${providerId} and r.accepted_at >= ${from} and r.accepted_at < ${to}
  )`
}

/** Position at which a page ended. */
export type RefundPosition = Pick<RefundRecord, 'acceptedAt' | 'paymentId' | 'number'>

async function readRows(
  sql: Queryable,
  condition: ReturnType<typeof sql>,
  order: ReturnType<typeof sql>,
  now: Date,
): Promise<RefundRecord[]> {
  const rows = await sql<Row[]>`
    select r.payment_id as id, r.of_payment_id as "paymentId", r.number, p.chain_id as "chainId", p.payer as "from", p.payee as "to",
      p.provider_amount as value, half.nonce, p.valid_before as "validBefore", r.accepted_at as "acceptedAt",
      payment_position.status, payment_position.attempts, payment_position.next_attempt_at as "nextAttemptAt", payment_position.failure_code as "failureCode",
      r.released_at is not null or (${isDead(sql)}) as "isDead", half.state, half.tx_hash as "txHash",
      half.block_number as "blockNumber", half.block_hash as "blockHash", half.block_time as "settledTime"
    from refund r join payment p on p.id = r.payment_id
    cross join lateral (select * from ${halves(sql)} h where h.payment_id = p.id) half
    cross join lateral ${paymentPosition(sql, now)} payment_position
    where ${condition}
    order by ${order}`
  return rows.map(({ state, status, ...row }) => ({
    ...row,
    status: toStatus(status),
    // A nonce that was cancelled or used elsewhere also has a transaction, but refunded nothing.
    ...(state !== 'settled' && { txHash: null, blockNumber: null, blockHash: null, settledTime: null }),
  }))
}

function toStatus(status: PaymentStatus): RefundStatus {
  return refundStatuses.find((one) => one === status) ?? 'failed'
}
