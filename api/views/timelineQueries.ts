import type { Hash } from 'viem'
import type { BatchOutcome } from '#ledger/batches/batches'
import { halves } from '#ledger/facts/halves'
import { standingOf } from '#ledger/queue/stages'
import type { Database } from '#ledger/store/database'
import type { Trigger } from '#protocol/settlement'
import { type Payout, readPayout } from '../payments/records/payments.ts'
import type { BlockRow } from './blockFacts.ts'
import type { FailedAttempt } from './failureQueries.ts'

export type SentTransaction = {
  hash: Hash
  kind: 'settle' | 'replacement' | 'cancellation'
  signedAt: Date
  broadcastAt: Date | null
  blockNumber: bigint | null
}

export type ClaimingBatch = {
  trigger: Trigger
  claimedAt: Date
  closedAt: Date | null
  outcome: BatchOutcome | null
  transactions: SentTransaction[]
}

/** What a payment went through: our own intent and attempts, and where the chain has its provider's half. */
export type PaymentTimeline = {
  chainId: number
  challengedAt: Date
  acceptedAt: Date
  publishedAt: Date | null
  voidedAt: Date | null
  failedAt: Date | null
  batches: ClaimingBatch[]
  failures: FailedAttempt[]
  mined: (Omit<BlockRow, 'gasTokenUsd'> & { txHash: Hash; blockTime: bigint }) | null
  payout: Payout | null
}

/** @returns undefined for a payment that doesn't exist, is only reserved, or is another provider's */
export async function findPaymentTimeline(
  sql: Database,
  { providerId, paymentId, now }: { providerId: string; paymentId: string; now: Date },
): Promise<PaymentTimeline | undefined> {
  const [payment] = await sql<Omit<PaymentTimeline, 'batches' | 'failures' | 'mined' | 'payout'>[]>`
    select p.chain_id as "chainId", p.challenged_at as "challengedAt", p.accepted_at as "acceptedAt",
      publication.published_at as "publishedAt", standing.voided_at as "voidedAt", standing.failed_at as "failedAt"
    from payment p left join publication on publication.payment_id = p.id
    cross join lateral ${standingOf(sql, now)} standing
    where p.id = ${paymentId} and p.provider_id = ${providerId} and standing.status is not null`
  if (payment === undefined) return undefined
  const [batches, failures, [mined], payout] = await Promise.all([
    readBatches(sql, paymentId),
    sql<FailedAttempt[]>`
      select attempt, code, detail, failed_at as "failedAt", next_attempt_at as "nextAttemptAt"
      from settlement_failure where payment_id = ${paymentId} order by failed_at, attempt`,
    sql<NonNullable<PaymentTimeline['mined']>[]>`
      select tx_hash as "txHash", block_number as "blockNumber", block_hash as "blockHash", block_time as "blockTime", (
        select confirmed_at from recorded_block
        where chain_id = ${payment.chainId} and number = block_number and hash = block_hash
      ) as "confirmedAt"
      from ${halves(sql)} h
      where payment_id = ${paymentId} and half = 0 and state = 'settled'`,
    readPayout(sql, paymentId),
  ])
  return { ...payment, batches, failures, mined: mined ?? null, payout }
}

/** A payment that left its batch before the signature is in none of the batch's transactions. */
async function readBatches(sql: Database, paymentId: string): Promise<ClaimingBatch[]> {
  const batches = await sql<(Omit<ClaimingBatch, 'transactions'> & { id: bigint })[]>`
    select b.id, b.trigger, b.created_at as "claimedAt", b.closed_at as "closedAt", b.outcome
    from batch_item i join batch b on b.id = i.batch_id
    where i.payment_id = ${paymentId}
    order by b.id`
  const sent = await sql<(SentTransaction & { batchId: bigint })[]>`
    select t.batch_id as "batchId", t.hash, t.kind, t.created_at as "signedAt", t.broadcast_at as "broadcastAt",
      t.mined_block as "blockNumber"
    from batch_item i join transaction t on t.batch_id = i.batch_id
    where i.payment_id = ${paymentId} and (i.provider_outcome is not null or i.batch_id in (
      select batch_id from queue where payment_id = ${paymentId}
      union all
      select batch_id from transaction where hash in (
        select tx_hash from ${halves(sql)} h where payment_id = ${paymentId} and state = 'settled'
      )
    ))
    order by t.created_at, t.max_fee_per_gas`
  const byBatch = Map.groupBy(sent, ({ batchId }) => batchId)
  return batches.map(({ id, ...batch }) => ({
    ...batch,
    transactions: (byBatch.get(id) ?? []).map(({ batchId: _, ...transaction }) => transaction),
  }))
}
