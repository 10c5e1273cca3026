import { type HalfState, halves } from '@tollkeeper/ledger/facts/halves'
import { payoutOf as payoutOfPayment } from '@tollkeeper/ledger/facts/payouts'
import { type HoldReason, standingOf } from '@tollkeeper/ledger/queue/stages'
import type { Database } from '@tollkeeper/ledger/store/database'
import type { PaymentStatus } from '@tollkeeper/sdk/protocol/paymentStatus'
import type { Address, Hash, Hex } from 'viem'
import { type RefundRecord, readRefunds } from './refunds.ts'

/** How it came in: the gateway's /verify, x402's facilitator, a refund, the keeper's /submit, or a closed tab. */
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

/** A payment as it stands: what was accepted, and what the record says of its halves. */
export type PaymentRecord = {
  paymentId: string
  /** The challenge that it answers; null: it didn't come through the gateway's /verify. */
  requestId: string | null
  source: PaymentSource
  /** Null: a facilitator's caller without an API key, a submission, or a tab. */
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
  /** Where its request was traced; null: nowhere, or that is deleted. */
  trace: Uint8Array | null
  attempts: number
  nextAttemptAt: Date | null
  /** Why it waits for gas; null: it doesn't, or nobody has looked yet. */
  heldBy: HoldReason | 'gas_price' | null
  failureCode: string | null
  failedAt: Date | null
  voidedAt: Date | null
  /** The provider's and the platform's wallet, and each one's part. */
  payee: Address
  feeRecipient: Address
  providerAmount: bigint
  feeAmount: bigint
  /** The splitter of its only authorization; null: each part has its own, or it is a tab's, which pays out at once. */
  splitter: Address | null
  /** Unix seconds: the earliest of its authorizations'. */
  validBefore: bigint
  status: PaymentStatus
  provider: PaymentHalf
  /** null: the fee has no authorization of its own. */
  fee: PaymentHalf | null
  /** Where a splitter paid its parts out; null: not yet, or it pays none. */
  paidOut: Payout | null
  /** In the order of their numbers. */
  refunds: RefundRecord[]
}

/** `at`: Unix seconds. */
export type Payout = { transactionHash: Hash; blockNumber: bigint; at: bigint; platformPaid: boolean }

/** One of each half. */
type Row = Omit<PaymentRecord, 'provider' | 'fee' | 'paidOut' | 'refunds'> & PaymentHalf

/** @param now decides whether an unused authorization has expired. */
export async function findPayment(
  sql: Database,
  paymentId: string,
  now: Date,
): Promise<PaymentRecord | undefined> {
  return (await findPayments(sql, [paymentId], now)).get(paymentId)
}

/** Several payments by their ids, without those that don't exist or are only reserved. */
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
        standing.status, standing.attempts, standing.next_attempt_at as "nextAttemptAt",
        standing.held_by as "heldBy", standing.failure_code as "failureCode", standing.failed_at as "failedAt", standing.voided_at as "voidedAt",
        h.state, h.recipient, h.value, h.nonce, h.tx_hash as "txHash", h.log_index as "logIndex",
        h.block_number as "blockNumber", h.block_hash as "blockHash"
      from payment p
      cross join lateral ${standingOf(sql, now)} standing
      join ${halves(sql)} h on h.payment_id = p.id
      left join presentation presented on presented.payment_id = p.id
      where p.id in ${sql(paymentIds)} and p.source <> 'refund' and standing.status is not null
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
