import { type Hex, zeroAddress } from 'viem'
import { pinBlock } from '#chain/head'
import type { DueBatch } from '#ledger/dueBatches'
import { readIndexedHead } from '#ledger/indexedHead'
import { readPaymentItems } from '#ledger/items'
import { publishPayments } from '#ledger/publish'
import { deferPayments } from '#ledger/queue'
import { answerSubmission, readWaitingSubmission } from '#ledger/submissions'
import { errorCodes } from '#protocol/errors'
import { applyDrops } from '../settler/postgresJournal.ts'
import { prepareItems } from '../settler/prepare.ts'
import type { Context } from './context.ts'
import { readIndexState } from './indexState.ts'
import { createLeased, type Leased, type StepResult } from './lease.ts'
import { isTokenPaused } from './tokenPause.ts'

/** What was pushed, and isn't on chain after this long, is pushed again. */
const pushedMs = 60_000
/** What is refused alone waits longer: the other side has its reason. */
const refusedMs = 10 * 60_000
const timeoutMs = 30_000

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
  const answer = await post(context, url, transfers)
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
    await answerSubmission(sql, waiting.id, { failureCode })
    return true
  }
  const answer = await post(context, url, transfers)
  await answerSubmission(
    sql,
    waiting.id,
    answer.status === 'taken' ? { txHash: answer.hash } : { failureCode: answer.code },
  )
  await checkpoint('after-push-recorded')
  log.info({ submission: `${waiting.id}`, ...answer }, 'submission given to the facilitator')
  return true
}

type Answer = { status: 'taken'; hash: Hex } | { status: 'refused'; code: string }

/** @throws where the answer says nothing of the transfers: it may have taken them, and is asked again, later and later. */
async function post(
  { served, settings, checkpoint }: Context,
  url: string,
  transfers: string[],
): Promise<Answer> {
  await checkpoint('before-push')
  const response = await fetch(new URL('/submit', url), {
    method: 'POST',
    headers: {
      'content-type': 'application/json',
      ...(settings.facilitatorKey ? { authorization: `Bearer ${settings.facilitatorKey}` } : {}),
    },
    body: JSON.stringify({ network: served.network.name, transfers }),
    signal: AbortSignal.timeout(timeoutMs),
  })
  const body: unknown = await response.json().catch(() => null)
  await checkpoint('after-push')
  const hash = typeof body === 'object' && body !== null && 'txHash' in body ? body.txHash : null
  if (response.ok && typeof hash === 'string' && /^0x[0-9a-f]{64}$/.test(hash))
    return { status: 'taken', hash: hash as Hex }
  const code = typeof body === 'object' && body !== null && 'code' in body ? String(body.code) : 'no code'
  // Of the transfers it speaks in definite words only; of us (a wrong key, too many requests) and of itself in the others.
  const isDefinite =
    response.status >= 400 && response.status < 500 && ![401, 403, 429].includes(response.status)
  if (!isDefinite || !Object.hasOwn(errorCodes, code))
    throw new Error(`the facilitator answered ${response.status} (${code}) to ${transfers.length} transfers`)
  return { status: 'refused', code }
}
