import type { Address, Hash, Hex } from 'viem'
import type { Database } from '#ledger/database'
import { type HalfState, halves } from '#ledger/halves'
import { paymentStatus } from '#ledger/paymentStatus'
import { payoutOf as payoutOfPayment } from '#ledger/payouts'
import type { PaymentStatus } from '#protocol/paymentStatus'
import { type RefundRecord, readRefunds } from './refunds.ts'

/** Whether the gateway's /verify accepted it, or x402's facilitator. */
export const paymentSources = ['gateway', 'facilitator'] as const
export type PaymentSource = (typeof paymentSources)[number]

export type PaymentHalf = {
  state: HalfState
  recipient: Address
  value: bigint
  validBefore: bigint
  nonce: Hex
  txHash: Hash | null
  logIndex: number | null
  blockNumber: bigint | null
  blockHash: Hash | null
}

/** A payment as it stands: what was accepted, and what the index says of its halves. */
export type PaymentRecord = {
  paymentId: string
  requestId: string
  source: PaymentSource
  /** Null: of a facilitator's caller without an API key. */
  providerId: string | null
  /** Null: came through the facilitator. */
  endpointId: string | null
  chainId: number
  token: Address
  payer: Address
  resource: string
  tier: string
  effectiveRate: string
  acceptedAt: Date
  attempts: number
  nextAttemptAt: Date | null
  failureCode: string | null
  failedAt: Date | null
  voidedAt: Date | null
  isSettling: boolean
  /** The provider's and the platform's wallet, and the part of each. */
  payee: Address
  feeRecipient: Address
  providerAmount: bigint
  feeAmount: bigint
  /** Whom the one authorization pays that carries both parts; null: each part has its own. */
  splitter: Address | null
  /** Unix seconds: the earliest of its authorizations'. */
  validBefore: bigint
  provider: PaymentHalf
  /** null: no authorization of its own carries the fee. */
  fee: PaymentHalf | null
  status: PaymentStatus
  /** Where a splitter paid its parts out; null: not yet, or it pays none. */
  payout: Payout | null
  /** In the order of their numbers. */
  refunds: RefundRecord[]
}

export type Payout = { txHash: Hash; blockNumber: bigint; blockTime: bigint; isPlatformPaid: boolean }

type Row = Omit<PaymentRecord, 'provider' | 'fee' | 'status' | 'payout' | 'refunds'>

/** @param now decides whether an authorization that nobody used has run out. */
export async function findPayment(
  sql: Database,
  paymentId: string,
  now: Date,
): Promise<PaymentRecord | undefined> {
  return (await findPayments(sql, [paymentId], now)).get(paymentId)
}

/** The same of several, by their ids; those that don't exist are left out. */
export async function findPayments(
  sql: Database,
  paymentIds: readonly string[],
  now: Date,
): Promise<Map<string, PaymentRecord>> {
  if (paymentIds.length === 0) return new Map()
  const [rows, found, payouts, refunds] = await Promise.all([
    sql<Row[]>`
      select id as "paymentId", request_id as "requestId", source, provider_id as "providerId", endpoint_id as "endpointId",
        chain_id as "chainId", token, payer, resource, tier, effective_rate as "effectiveRate",
        accepted_at as "acceptedAt", attempts, next_attempt_at as "nextAttemptAt", failure_code as "failureCode",
        failed_at as "failedAt", voided_at as "voidedAt", payee, fee_recipient as "feeRecipient",
        provider_amount as "providerAmount", fee_amount as "feeAmount", splitter, valid_before as "validBefore",
        exists (
          select from batch_item item join batch on batch.id = item.batch_id
          where item.payment_id = payment.id and item.active and batch.state not in ('claimed', 'closed')
        ) as "isSettling"
      from payment
      where id in ${sql(paymentIds)} and (source = 'gateway' or due_at is not null)`,
    sql<(PaymentHalf & { paymentId: string; half: 0 | 1 })[]>`
      select payment_id as "paymentId", half, state, recipient, value, valid_before as "validBefore", nonce,
        tx_hash as "txHash", log_index as "logIndex", block_number as "blockNumber", block_hash as "blockHash"
      from ${halves(sql)} h
      where payment_id in ${sql(paymentIds)}`,
    readPayouts(sql, paymentIds),
    readRefunds(sql, paymentIds, now),
  ])
  const halvesOf = Map.groupBy(found, ({ paymentId }) => paymentId)
  const payoutOf = new Map(payouts.map(({ paymentId, ...payout }) => [paymentId, payout]))
  return new Map(
    rows.flatMap((row) => {
      const own = halvesOf.get(row.paymentId) ?? []
      const provider = own.find(({ half }) => half === 0)
      const fee = own.find(({ half }) => half === 1) ?? null
      if (provider === undefined) return []
      const isExpired = Number(row.validBefore) * 1000 <= now.getTime()
      const status = paymentStatus({
        provider: provider.state,
        fee: fee?.state ?? null,
        isSettling: row.isSettling,
        attempts: row.attempts,
        isFailed: row.failedAt !== null || isExpired,
        isVoided: row.voidedAt !== null,
      })
      return [
        [
          row.paymentId,
          {
            ...row,
            provider,
            fee,
            status,
            payout: payoutOf.get(row.paymentId) ?? null,
            refunds: refunds.filter((one) => one.paymentId === row.paymentId),
          },
        ],
      ]
    }),
  )
}

function readPayouts(
  sql: Database,
  paymentIds: readonly string[],
): Promise<(Payout & { paymentId: string })[]> {
  return sql<(Payout & { paymentId: string })[]>`
    select p.id as "paymentId", o.tx_hash as "txHash", o.block_number as "blockNumber", o.block_time as "blockTime",
      o.is_platform_paid as "isPlatformPaid"
    from payment p cross join lateral ${payoutOfPayment(sql)} o
    where p.id in ${sql(paymentIds)} and p.splitter is not null`
}

export async function readPayout(sql: Database, paymentId: string): Promise<Payout | null> {
  return (await readPayouts(sql, [paymentId]))[0] ?? null
}

export type VoidOutcome = 'voided' | 'unknown' | 'forbidden' | 'claimed'

/**
 * Voids a payment, unless a batch has claimed it, it was published, concluded, or a half of it moved. Voiding it again is
 * fine. A concluded payment is refused even where the index, being rebuilt, no longer shows that it settled.
 *
 * The keeper claims under the same row lock, so one of the two comes first and the other sees it.
 */
export async function voidPayment(
  sql: Database,
  { paymentId, providerId, now }: { paymentId: string; providerId: string; now: Date },
): Promise<VoidOutcome> {
  return sql.begin(async (tx): Promise<VoidOutcome> => {
    const [payment] = await tx<{ providerId: string | null; voidedAt: Date | null; isTaken: boolean }[]>`
      select provider_id as "providerId", voided_at as "voidedAt",
        published_at is not null or concluded_at is not null as "isTaken"
      from payment where id = ${paymentId} for update`
    if (payment === undefined) return 'unknown'
    if (payment.providerId !== providerId) return 'forbidden'
    if (payment.voidedAt !== null) return 'voided'
    const [claim] = await tx`
      select from batch_item where payment_id = ${paymentId} and active
      union all
      select from ${halves(tx)} h where payment_id = ${paymentId} and state <> 'open'
      limit 1`
    if (claim !== undefined || payment.isTaken) return 'claimed'
    await tx`update payment set voided_at = ${now} where id = ${paymentId}`
    return 'voided'
  }) as Promise<VoidOutcome>
}
