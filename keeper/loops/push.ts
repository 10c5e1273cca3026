import { zeroAddress } from 'viem'
import { pinBlock } from '#chain/head'
import type { DueBatch } from '#ledger/dueBatches'
import { readIndexedHead } from '#ledger/indexedHead'
import { readPaymentItems } from '#ledger/items'
import { publishPayments } from '#ledger/publish'
import { deferPayments } from '#ledger/queue'
import { answerSubmission, readWaitingSubmission } from '#ledger/submissions'
import { prepareItems } from '../settler/prepare.ts'
import { askFacilitator } from './askFacilitator.ts'
import type { Context } from './context.ts'
import { applyDrops } from './drops.ts'
import { readIndexState } from './indexState.ts'
import { createLeased, type Leased, type StepResult } from './lease.ts'
import { isTokenPaused } from './tokenPause.ts'

/** What was pushed, and isn't on chain after this long, is pushed again. */
const pushedMs = 60_000
/** What is refused alone waits longer: the other side has its reason. */
const refusedMs = 10 * 60_000

/**
 * Gives what is due to another facilitator's `POST /submit` instead of settling it. Nothing is claimed: what settles is seen
 * in the index like a stranger's settlement, and what doesn't is due again.
 *
 * It needs no wallet; the lease keeps two keepers from pushing the same payments in different company.
 */
export function createPusher(context: Context, holder: string, url: string): Leased {
  /** What the other side may have taken without an answer: exactly that is asked again, which is the same submission there. */
  let unanswered: DueBatch | null = null
  return createLeased(context, holder, zeroAddress, async (): Promise<StepResult> => {
    if ((await readIndexState(context)).status !== 'current') return 'idle'
    if (await pushSubmission(context, url)) return 'busy'
    if (await isTokenPaused(context)) return 'idle'
    const due = unanswered
      ? [unanswered]
      : await context.readDueBatches({
          settings: context.settings,
          from: context.served.deployment.batchSettlement,
          now: context.now(),
        })
    for (const batch of due) {
      const payments = batch.lane === 'high_value' ? batch.payments.slice(0, 1) : batch.payments
      unanswered = { ...batch, payments }
      await pushPayments(context, url, unanswered)
      unanswered = null
    }
    return due.length > 0 ? 'busy' : 'idle'
  })
}

async function pushPayments(
  context: Context,
  url: string,
  { group, trigger, payments }: DueBatch,
): Promise<void> {
  const { sql, served, now } = context
  const ids = payments.map(({ id }) => id)
  const [items, indexed] = await Promise.all([
    readPaymentItems(sql, ids),
    readIndexedHead(sql, served.network.chainId),
  ])
  const at = await pinBlock(served.client, indexed?.blockNumber ?? 0n)
  const batch = {
    batchId: context.randomBytes32(),
    token: group.token,
    feeRecipient: group.feeRecipient,
    trigger,
    isSubmission: false,
  }
  const { plan, drops } = await prepareItems(
    context,
    batch,
    items,
    { address: served.deployment.batchSettlement },
    at,
  )
  // A failure is counted where our own simulation shows it, as before a batch of our own.
  await sql.begin((tx) => applyDrops(context, tx, null, drops))
  const settled = drops.flatMap(({ item, reason }) =>
    reason === 'already_settled' ? (item.paymentId ?? []) : [],
  )
  await deferPayments(sql, settled, new Date(now().getTime() + pushedMs))
  if (plan)
    await pushPublished(
      context,
      url,
      plan.entries.flatMap(({ item }) => item.paymentId ?? []),
    )
}

/** What is refused in company is asked for in halves, until whatever is refused is alone: one submission is all or nothing. */
async function pushPublished(context: Context, url: string, ids: string[]): Promise<void> {
  const { sql, now, log } = context
  const published = await publishPayments(sql, ids, now())
  const transfers = published.flatMap(({ payloads }) => payloads)
  if (transfers.length === 0) return
  const answer = await askFacilitator(context, url, transfers)
  const later = (ms: number) => deferPayments(sql, ids, new Date(now().getTime() + ms))
  if (answer.status === 'taken') {
    await later(pushedMs)
    log.info({ hash: answer.hash, payments: published.length }, 'payments given to the facilitator')
  } else if (answer.code === 'payment_replayed' || ids.length === 1) {
    // At work there in another company; or it is this one that is refused.
    await later(answer.code === 'payment_replayed' ? pushedMs : refusedMs)
    log.warn({ code: answer.code, payments: ids }, 'the facilitator refused payments')
  } else {
    const half = Math.ceil(ids.length / 2)
    await pushPublished(context, url, ids.slice(0, half))
    await pushPublished(context, url, ids.slice(half))
  }
}

/** Gives a submission that waits here to the other facilitator as it is: its answer is ours. */
async function pushSubmission(context: Context, url: string): Promise<boolean> {
  const { sql, served, now, log, checkpoint } = context
  const waiting = await readWaitingSubmission(sql, { chainId: served.network.chainId, token: served.token })
  if (!waiting) return false
  // What has settled as well: the answer may have been lost, and the other side knows the submission by all of its transfers.
  const published = await publishPayments(sql, waiting.paymentIds, now(), 'settled too')
  const transfers = [...published.flatMap(({ payloads }) => payloads), ...waiting.transfers]
  if (published.length < waiting.paymentIds.length || transfers.length === 0) {
    const failureCode = waiting.isVoided ? 'payment_voided' : 'authorization_used'
    await answerSubmission(sql, waiting.id, { failureCode, report: [] })
    return true
  }
  const answer = await askFacilitator(context, url, transfers)
  const { report } = answer
  await answerSubmission(sql, waiting.id, {
    ...(answer.status === 'taken' ? { txHash: answer.hash } : { failureCode: answer.code }),
    report,
  })
  await checkpoint('after-push-recorded')
  log.info({ submission: `${waiting.id}`, status: answer.status }, 'submission given to the facilitator')
  return true
}
