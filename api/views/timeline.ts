import { z } from '@hono/zod-openapi'
import { networkByChainId } from '#protocol/networks'
import type { App } from '../http/app.ts'
import { ownersOnly } from '../http/authenticate.ts'
import { jsonAnswer } from '../http/problems.ts'
import { Refusal } from '../http/refusal.ts'
import { route } from '../http/route.ts'
import * as wire from '../http/wire.ts'
import type { Payout } from '../payments/records/payments.ts'
import { readRefunds } from '../payments/records/refunds.ts'
import { refund, toRefund } from '../payments/refunds/route.ts'
import type { RouteOptions } from '../routeOptions.ts'
import { addConfirmations } from './blockFacts.ts'
import { failedAttempt, toFailedAttempt } from './failures.ts'
import {
  type ClaimingBatch,
  findPaymentTimeline,
  type PaymentTimeline,
  type SentTransaction,
} from './timelineQueries.ts'

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

const getTimeline = route({
  ...ownersOnly,
  tags: ['Provider views'],
  method: 'get',
  path: '/providers/{id}/payments/{paymentId}/timeline',
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
        confirmedAt: wire.isoOrNull(mined?.confirmedAt),
        confirmations: Math.min(Math.max(above, 0), required),
        confirmationsRequired: required,
        indexedBlock,
      },
      200,
    )
  })
}

function toTimeline({ chainId, batches, failures, mined, payout, ...times }: PaymentTimeline) {
  return {
    network: networkByChainId(chainId).name,
    challengedAt: times.challengedAt.toISOString(),
    acceptedAt: times.acceptedAt.toISOString(),
    publishedAt: wire.isoOrNull(times.publishedAt),
    voidedAt: wire.isoOrNull(times.voidedAt),
    failedAt: wire.isoOrNull(times.failedAt),
    batches: batches.map(toClaimingBatch),
    failures: failures.map(toFailedAttempt),
    mined: mined && toMined(mined),
    paidOut: payout && toMined(payout),
  }
}

function toMined({ blockTime, txHash, blockNumber }: Pick<Payout, 'blockTime' | 'txHash' | 'blockNumber'>) {
  return { at: wire.isoOfSeconds(blockTime), transactionHash: txHash, blockNumber: Number(blockNumber) }
}

function toClaimingBatch({ transactions, claimedAt, closedAt, ...batch }: ClaimingBatch) {
  return {
    ...batch,
    claimedAt: claimedAt.toISOString(),
    closedAt: wire.isoOrNull(closedAt),
    transactions: transactions.map(toTransaction),
  }
}

function toTransaction({ signedAt, broadcastAt, blockNumber, ...transaction }: SentTransaction) {
  return {
    ...transaction,
    signedAt: signedAt.toISOString(),
    broadcastAt: wire.isoOrNull(broadcastAt),
    blockNumber: blockNumber === null ? null : Number(blockNumber),
  }
}
