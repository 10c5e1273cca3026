import { type HalfState, halves } from '@tollkeeper/ledger/facts/halves'
import { payoutOf as payoutOfPayment } from '@tollkeeper/ledger/facts/payouts'
import { type HoldReason, paymentPosition } from '@tollkeeper/ledger/queue/stages'
import type { Database } from '@tollkeeper/ledger/store/database'
import type { PaymentStatus } from '@tollkeeper/sdk/protocol/paymentStatus'
import type { Address, Hash, Hex } from 'viem'
import { type RefundRecord, readRefunds } from './refunds.ts'

/** How a payment came in: through the gateway's /verify, x402's facilitator, the keeper's /submit (also a refund), or a closed tab. */
export const paymentSources = ['gateway', 'facilitator', 'submission', 'tab'] as const
export type PaymentSource = (typeof paymentSources)[number]

export type PaymentHalf = {
  state: HalfState
  recipient: Address
  value: bigint
  nonce: Hex
  txHash: Hash | null
  logIndex: number | null
  blockNumber: bigint | null
  blockHash: Hash | null
}

/** A payment in its current state: what was accepted, and what the record shows of its halves. */
export type PaymentRecord = {
  paymentId: string
  /** Id of the challenge that the payment pays; null: the payment didn't come through the gateway's /verify. */
  requestId: string | null
  source: PaymentSource
  /** Null: it came from a facilitator's caller without an API key, or from a submission, or it is a tab. */
  providerId: string | null
  /** Null: it didn't come through the gateway's /verify. */
  endpointId: string | null
  chainId: number
  token: Address
  payer: Address
  resource: string
  tier: string
  effectiveRate: string
  acceptedAt: Date
  /** Trace context of the request; null: the request wasn't traced, or the trace has been deleted. */
  trace: Uint8Array | null
  attempts: number
  nextAttemptAt: Date | null
  /** Why the payment waits for gas; null: it doesn't wait, or that hasn't been checked yet. */
  heldBy: HoldReason | 'gas_price' | null
  failureCode: string | null
  failedAt: Date | null
  voidedAt: Date | null
  /** The wallets of the provider and the platform, and the part of each. */
  payee: Address
  feeRecipient: Address
  providerAmount: bigint
  feeAmount: bigint
  /**
   * The splitter that the payment's only authorization pays. Null: each part has a separate authorization, or the payment is a tab, which pays out
   * directly.
   */
  splitter: Address | null
  /** Unix seconds: the earliest validBefore of its authorizations. */
  validBefore: bigint
  status: PaymentStatus
  provider: PaymentHalf
  /** Null: the fee has no separate authorization. */
  fee: PaymentHalf | null
  /** The sweep in which the splitter paid out both parts; null: not yet, or the payment has no splitter. */
  paidOut: Payout | null
  /** Refunds in the order of their numbers. */
  refunds: RefundRecord[]
}

/** `at`: Unix seconds. */
export type Payout = { transactionHash: Hash; blockNumber: bigint; at: bigint; platformPaid: boolean }

/** A row per half of a payment. */
type Row = Omit<PaymentRecord, 'provider' | 'fee' | 'paidOut' | 'refunds'> & PaymentHalf

/** @param now decides whether an unused authorization has expired. */
export async function findPayment(
  sql: Database,
  paymentId: string,
  now: Date,
): Promise<PaymentRecord | undefined> {
  return (await findPayments(sql, [paymentId], now)).get(paymentId)
}

/** Finds several payments by their ids. Payments that don't exist or are only reserved are left out. */
export async function findPayments(
  sql: Database,
  paymentIds: readonly string[],
  now: Date,
): Promise<Map<string, PaymentRecord>> {
  if (paymentIds.length === 0) return new Map()
  const [rows, payouts, refunds] = await Promise.all([
    sql<Row[]>`
      select p.id as "paymentId", p.request_id as "requestId", p.source, p.provider_id as "providerId",
        p.endpoint_id as "endpointId", p.chain_id as "chainId", p.token, p.payer, p.resource, p.tier,
        p.effective_rate as "effectiveRate", p.accepted_at as "acceptedAt", presented.trace, p.payee, p.fee_recipient as "feeRecipient",
        p.provider_amount as "providerAmount", p.fee_amount as "feeAmount",
        case when p.source <> 'tab' then p.splitter end as splitter, p.valid_before as "validBefore",
        payment_position.status, payment_position.attempts, payment_position.next_attempt_at as "nextAttemptAt",
        payment_position.held_by as "heldBy", payment_position.failure_code as "failureCode", payment_position.failed_at as "failedAt", payment_position.voided_at as "voidedAt",
        h.state, h.recipient, h.value, h.nonce, h.tx_hash as "txHash", h.log_index as "logIndex",
        h.block_number as "blockNumber", h.block_hash as "blockHash"
      from payment p
      cross join lateral ${paymentPosition(sql, now)} payment_position
      join ${halves(sql)} h on h.payment_id = p.id
      left join presentation presented on presented.payment_id = p.id
      where p.id in ${sql(paymentIds)} and p.source <> 'refund' and payment_position.status is not null
      order by h.half`,
    readPayouts(sql, paymentIds),
    readRefunds(sql, paymentIds, now),
  ])
  const payoutOf = new Map(payouts.map(({ paymentId, ...payout }) => [paymentId, payout]))
  const found = new Map<string, PaymentRecord>()
  for (const { state, recipient, value, nonce, txHash, logIndex, blockNumber, blockHash, ...row } of rows) {
    const half = { state, recipient, value, nonce, txHash, logIndex, blockNumber, blockHash }
    const payment = found.get(row.paymentId)
    if (payment) payment.fee = half
    else
      found.set(row.paymentId, {
        ...row,
        provider: half,
        fee: null,
        paidOut: payoutOf.get(row.paymentId) ?? null,
        refunds: refunds.filter((one) => one.paymentId === row.paymentId),
      })
  }
  return found
}

function readPayouts(
  sql: Database,
  paymentIds: readonly string[],
): Promise<(Payout & { paymentId: string })[]> {
  return sql<(Payout & { paymentId: string })[]>`
    select p.id as "paymentId", o.tx_hash as "transactionHash", o.block_number as "blockNumber", o.block_time as at,
      o.is_platform_paid as "platformPaid"
    from payment p cross join lateral ${payoutOfPayment(sql)} o
    where p.id in ${sql(paymentIds)} and p.splitter is not null`
}

export async function readPayout(sql: Database, paymentId: string): Promise<Payout | null> {
  return (await readPayouts(sql, [paymentId]))[0] ?? null
}
