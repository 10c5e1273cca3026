import { z } from '@hono/zod-openapi'
import { halves } from '@tollkeeper/ledger/facts/halves'
import { paymentPosition } from '@tollkeeper/ledger/queue/stages'
import type { Database } from '@tollkeeper/ledger/store/database'
import type { TabReads } from '@tollkeeper/ledger/tabs/tabReads'
import { providerViews } from '../http/authenticate.ts'
import { Refusal } from '../http/refusal.ts'
import { view } from '../http/view.ts'
import * as wire from '../http/wire.ts'
import { readPayout } from '../payments/records/payments.ts'
import type { RecordedHeads } from '../payments/records/recordedHeads.ts'
import { readRefunds } from '../payments/records/refunds.ts'
import { findPaymentOrTab } from '../payments/records/tabPayments.ts'
import { refund, toRefund } from '../payments/refunds/route.ts'
import type { GatewayNetworks } from '../registry/networks.ts'
import { addConfirmations, type BlockRow } from './blockFacts.ts'
import { failedAttempt } from './failures.ts'

const sentTransaction = z.object({
  hash: wire.hashOut,
  kind: z.enum(['settle', 'replacement', 'cancellation']),
  signedAt: wire.isoTime,
  broadcastAt: wire.isoTime.nullable(),
  blockNumber: wire.integer.nullable(),
})

const claimingBatch = z.object({
  trigger: wire.triggerName,
  claimedAt: wire.isoTime,
  closedAt: wire.isoTime.nullable(),
  result: z
    .enum(['settled', 'nothing_left', 'released', 'reverted', 'lost'])
    .nullable()
    .openapi({ description: 'Why it was closed; null while it is open' }),
  transactions: z.array(sentTransaction),
})

const minedIn = z.object({ at: wire.isoSeconds, transactionHash: wire.hashOut, blockNumber: wire.integer })

export const timeline = z
  .object({
    paymentId: wire.paymentId,
    network: wire.networkOfChain,
    challengedAt: wire.isoTime,
    acceptedAt: wire.isoTime,
    publishedAt: wire.isoTime.nullable(),
    voidedAt: wire.isoTime.nullable(),
    failedAt: wire.isoTime.nullable(),
    batches: z
      .array(claimingBatch)
      .openapi({ description: 'Each batch of this gateway that claimed the payment, oldest first' }),
    failures: z.array(failedAttempt),
    mined: minedIn
      .nullable()
      .openapi({ description: "The provider's half, as the recorded chain shows it now" }),
    paidOut: minedIn
      .nullable()
      .openapi({ description: 'When its splitter paid it out; null: not yet, or it pays no splitter' }),
    refunds: z.array(refund),
    confirmedAt: wire.isoTime.nullable(),
    confirmations: z
      .int()
      .openapi({ description: 'Number of blocks on top of it so far, at most the number required' }),
    confirmationsRequired: z.int(),
    indexedBlock: wire.indexedBlock,
  })
  .openapi('PaymentTimeline')

export type TimelineRouteOptions = {
  sql: Database
  tabReads: TabReads
  heads: RecordedHeads
  networks: GatewayNetworks
  now: () => number
}

export const addTimelineRoute = view('/providers/{id}/payments/{paymentId}/timeline', {
  ...providerViews,
  summary: 'Timeline of a payment, from its challenge to its confirmation',
  answer: ['The timeline', timeline],
  open:
    ({ sql, tabReads, heads, networks, now }: TimelineRouteOptions) =>
    async ({ id: providerId, paymentId }) => {
      const at = new Date(now())
      const asked = { providerId, paymentId, now: at }
      const found =
        (await findPaymentTimeline(sql, asked)) ?? (await findTabTimeline({ sql, tabReads }, asked))
      if (found === undefined) throw new Refusal('unknown_payment')
      const { mined, network: chainId } = found
      const refunds = await readRefunds(sql, [paymentId], at)
      const { served } = networks.ofChain(chainId)
      const indexedBlock = await heads.of(chainId)
      if (mined) await addConfirmations(served, [mined], indexedBlock ?? 0)
      const required = served.network.confirmations
      const above = mined ? (indexedBlock ?? 0) - Number(mined.blockNumber) : 0
      return {
        ...found,
        refunds: refunds.map(toRefund),
        confirmedAt: mined?.confirmedAt ?? null,
        confirmations: Math.min(Math.max(above, 0), required),
        confirmationsRequired: required,
        indexedBlock,
      }
    },
})

type Timeline = z.input<typeof timeline>
type Moments = 'challengedAt' | 'acceptedAt' | 'publishedAt' | 'voidedAt' | 'failedAt'
type Mined = NonNullable<Timeline['mined']> & Omit<BlockRow, 'gasTokenUsd'>
type ClaimingBatch = z.input<typeof claimingBatch>
type SentTransaction = z.input<typeof sentTransaction>

/** @returns undefined if the payment doesn't exist, is only reserved, or belongs to another provider */
async function findPaymentTimeline(
  sql: Database,
  { providerId, paymentId, now }: { providerId: string; paymentId: string; now: Date },
) {
  const [payment] = await sql<Pick<Timeline, 'paymentId' | 'network' | Moments>[]>`
    select p.id as "paymentId", p.chain_id as network, p.challenged_at as "challengedAt", p.accepted_at as "acceptedAt",
      publication.published_at as "publishedAt", payment_position.voided_at as "voidedAt", payment_position.failed_at as "failedAt"
    from payment p left join publication on publication.payment_id = p.id
    cross join lateral ${paymentPosition(sql, now)} payment_position
    where p.id = ${paymentId} and payment_position.status is not null
      and exists (select from sale s where s.payment_id = p.id and s.provider_id = ${providerId})`
  if (payment === undefined) return undefined
  const [batches, failures, [mined], paidOut] = await Promise.all([
    readBatches(sql, paymentId),
    sql<z.input<typeof failedAttempt>[]>`
      select attempt, code, detail, failed_at as "failedAt", next_attempt_at as "nextAttemptAt"
      from settlement_failure where payment_id = ${paymentId} order by failed_at, attempt`,
    sql<Mined[]>`
      select tx_hash as "transactionHash", block_number as "blockNumber", block_hash as "blockHash", block_time as at, (
        select confirmed_at from recorded_block
        where chain_id = ${payment.network} and number = block_number and hash = block_hash
      ) as "confirmedAt"
      from ${halves(sql)} h
      where payment_id = ${paymentId} and half = 0 and state = 'settled'`,
    readPayout(sql, paymentId),
  ])
  return { ...payment, batches, failures, mined: mined ?? null, paidOut }
}

/**
 * Finds the timeline of a tab that isn't a payment in the ledger.
 *
 * @returns undefined if there is no such tab, or the provider sold nothing on it
 */
async function findTabTimeline(
  { sql, tabReads }: Pick<TimelineRouteOptions, 'sql' | 'tabReads'>,
  asked: { providerId: string; paymentId: string; now: Date },
) {
  const { providerId, paymentId, now } = asked
  const found = await findPaymentOrTab({ sql, tabReads }, paymentId, now)
  if (found === undefined) return undefined
  const tab = found.storedTab ?? found.unpaidTab
  // The payment belongs to another provider, or the ledger has imported the tab since the first query.
  if (tab === undefined) return findPaymentTimeline(sql, asked)
  if (!(await tabReads.isSeller(tab, providerId))) return undefined
  return {
    paymentId,
    network: found.chainId,
    challengedAt: tab.openedAt,
    acceptedAt: found.acceptedAt,
    publishedAt: null,
    voidedAt: found.voidedAt,
    failedAt: found.failedAt,
    batches: [],
    failures: [],
    mined: null,
    paidOut: null,
  }
}

/** Reads the batches that claimed a payment. A payment that left a batch before the batch was signed is in none of the batch's transactions. */
async function readBatches(sql: Database, paymentId: string): Promise<ClaimingBatch[]> {
  const batches = await sql<(Omit<ClaimingBatch, 'transactions'> & { id: bigint })[]>`
    select b.id, b.trigger, b.created_at as "claimedAt", b.closed_at as "closedAt", b.result
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
  return batches.map((batch) => ({ ...batch, transactions: byBatch.get(batch.id) ?? [] }))
}
