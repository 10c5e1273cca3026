import { z } from '@hono/zod-openapi'
import type { Hash } from 'viem'
import type { BatchOutcome } from '#ledger/batches/batches'
import { halves } from '#ledger/facts/halves'
import { standingOf } from '#ledger/queue/stages'
import type { Database } from '#ledger/store/database'
import { networkByChainId } from '#protocol/networks'
import type { Trigger } from '#protocol/settlement'
import type { App } from '../http/app.ts'
import { providerViews } from '../http/authenticate.ts'
import { jsonAnswer } from '../http/problems.ts'
import { Refusal } from '../http/refusal.ts'
import { route } from '../http/route.ts'
import * as wire from '../http/wire.ts'
import { type Payout, readPayout } from '../payments/records/payments.ts'
import { readRefunds } from '../payments/records/refunds.ts'
import { refund, toRefund } from '../payments/refunds/route.ts'
import type { RouteOptions } from '../routeOptions.ts'
import { addConfirmations, type BlockRow } from './blockFacts.ts'
import { type FailedAttempt, failedAttempt } from './failures.ts'

const claimingBatch = z.object({
  trigger: wire.triggerName,
  claimedAt: wire.isoTime,
  closedAt: wire.isoTime.nullable(),
  outcome: z
    .enum(['settled', 'nothing_left', 'released', 'reverted', 'lost'])
    .nullable()
    .openapi({ description: 'Why it was closed; null while it is open' }),
  transactions: z.array(
    z.object({
      hash: wire.hashOut,
      kind: z.enum(['settle', 'replacement', 'cancellation']),
      signedAt: wire.isoTime,
      broadcastAt: wire.isoTime.nullable(),
      blockNumber: z.int().nullable(),
    }),
  ),
})

export const timeline = z
  .object({
    paymentId: wire.paymentId,
    network: wire.networkName,
    challengedAt: wire.isoTime,
    acceptedAt: wire.isoTime,
    publishedAt: wire.isoTime.nullable(),
    voidedAt: wire.isoTime.nullable(),
    failedAt: wire.isoTime.nullable(),
    batches: z
      .array(claimingBatch)
      .openapi({ description: 'Each batch of ours that claimed it, the oldest first' }),
    failures: z.array(failedAttempt),
    mined: z
      .object({ at: wire.isoTime, transactionHash: wire.hashOut, blockNumber: z.int() })
      .nullable()
      .openapi({ description: "Of the provider's half, as the recorded chain shows it now" }),
    paidOut: z
      .object({ at: wire.isoTime, transactionHash: wire.hashOut, blockNumber: z.int() })
      .nullable()
      .openapi({ description: 'By the splitter that it pays; null: not yet, or it pays none' }),
    refunds: z.array(refund),
    confirmedAt: wire.isoTime.nullable(),
    confirmations: z.int().openapi({ description: 'Blocks on top of it so far, at most those required' }),
    confirmationsRequired: z.int(),
    indexedBlock: wire.indexedBlock,
  })
  .openapi('PaymentTimeline')

const getTimeline = route('get', '/providers/{id}/payments/{paymentId}/timeline', {
  ...providerViews,
  summary: 'What a payment went through, from its challenge to its confirmation',
  responses: { 200: jsonAnswer('The timeline', timeline) },
})

export function addTimelineRoute(app: App, { sql, heads, networks, now }: RouteOptions): void {
  app.openapi(getTimeline, async (c) => {
    const { id: providerId, paymentId } = c.req.valid('param')
    const at = new Date(now())
    const found = await findPaymentTimeline(sql, { providerId, paymentId, now: at })
    if (found === undefined) throw new Refusal('unknown_payment')
    const { mined } = found
    const refunds = await readRefunds(sql, [paymentId], at)
    const { served } = networks.ofChain(found.chainId)
    const indexedBlock = await heads.of(found.chainId)
    if (mined) await addConfirmations(served, [mined], indexedBlock ?? 0)
    const required = served.network.confirmations
    const above = mined ? (indexedBlock ?? 0) - Number(mined.blockNumber) : 0
    return c.json(
      {
        paymentId,
        ...toTimeline(found),
        refunds: refunds.map(toRefund),
        confirmedAt: mined?.confirmedAt ?? null,
        confirmations: Math.min(Math.max(above, 0), required),
        confirmationsRequired: required,
        indexedBlock,
      },
      200,
    )
  })
}

function toTimeline({ chainId, batches, mined, payout, ...found }: PaymentTimeline) {
  return {
    ...found,
    network: networkByChainId(chainId).name,
    batches: batches.map(toClaimingBatch),
    mined: mined && toMined(mined),
    paidOut: payout && toMined(payout),
  }
}

function toMined({ blockTime, txHash, blockNumber }: Pick<Payout, 'blockTime' | 'txHash' | 'blockNumber'>) {
  return { at: wire.isoOfSeconds(blockTime), transactionHash: txHash, blockNumber: Number(blockNumber) }
}

function toClaimingBatch({ transactions, ...batch }: ClaimingBatch) {
  return { ...batch, transactions: transactions.map(toTransaction) }
}

function toTransaction({ blockNumber, ...transaction }: SentTransaction) {
  return { ...transaction, blockNumber: blockNumber === null ? null : Number(blockNumber) }
}

type SentTransaction = {
  hash: Hash
  kind: 'settle' | 'replacement' | 'cancellation'
  signedAt: Date
  broadcastAt: Date | null
  blockNumber: bigint | null
}

type ClaimingBatch = {
  trigger: Trigger
  claimedAt: Date
  closedAt: Date | null
  outcome: BatchOutcome | null
  transactions: SentTransaction[]
}

/** A payment's history: our own intent and attempts, and where the chain has its provider's half. */
type PaymentTimeline = {
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
async function findPaymentTimeline(
  sql: Database,
  { providerId, paymentId, now }: { providerId: string; paymentId: string; now: Date },
): Promise<PaymentTimeline | undefined> {
  const [payment] = await sql<Omit<PaymentTimeline, 'batches' | 'failures' | 'mined' | 'payout'>[]>`
    select p.chain_id as "chainId", p.challenged_at as "challengedAt", p.accepted_at as "acceptedAt",
      publication.published_at as "publishedAt", standing.voided_at as "voidedAt", standing.failed_at as "failedAt"
    from payment p left join publication on publication.payment_id = p.id
    cross join lateral ${standingOf(sql, now)} standing
    where p.id = ${paymentId} and standing.status is not null and (p.provider_id = ${providerId} or exists (
      select from tab_sale s where s.payment_id = p.id and s.provider_id = ${providerId}
    ))`
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
