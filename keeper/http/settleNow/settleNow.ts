import type { SettlementProgress } from '@tollkeeper/ledger/acceptance/facilitations'
import { giveUpUnsent } from '@tollkeeper/ledger/outcomes/voids'
import type { Hex } from 'viem'
import type { HttpContext } from '../context.ts'
import type { Connection } from './connection.ts'
import { isUsedUp, type VerdictStatus, verdictOf } from './verdict.ts'

// `POST /submit` and x402's `/settle` share this: they store a request's payments as due, and wait until the chain has settled them.

/** The rules by which a caller waits. Times in ms since its payments are due. */
export type WaitPolicy = {
  /** The status of a payment that answers its caller; a settled or failed one always does. */
  isEnough: (status: VerdictStatus) => boolean
  /** The caller is answered at this time at the latest; about an unsent payment, at `voidMs` if that is later. */
  answerMs: number
  /** An unsent payment is voided at this time, so that its caller can be refused; Infinity: never. */
  voidMs: number
}

/** A request to settle payments at once, as one of the routes received it. */
export type SettleRequest<Stored> = {
  /** Reads what is stored of it. @throws if another request holds a part of it. */
  read: () => Promise<Stored>
  /** Continues a stored request. @returns its payments, which are due; null: a part of it must be stored first. */
  resume: (stored: Stored) => Promise<readonly string[] | null>
  /** Judges it, and stores all of it as due, or nothing. @returns its payments. @throws why it is refused. */
  start: (stored: Stored) => Promise<readonly string[]>
  /** Called once its payments are due. */
  onDue: () => Promise<void> | void
  /** Its payments settle together, or not at all; null: by themselves. */
  submission: Hex | null
  policy: WaitPolicy
  connection: Connection
}

/** Where each payment of a request stands, by its id; without those of which nothing could be read. */
export type Progress = ReadonlyMap<string, SettlementProgress>

/**
 * Settles the payments of a request now, and waits until its caller can be answered.
 *
 * The same request again continues to wait, and two of them at the same time settle once.
 *
 * @throws why the request is refused; then this call has stored nothing.
 */
export async function settleNow<Stored>(
  context: HttpContext,
  request: SettleRequest<Stored>,
): Promise<Progress> {
  const paymentIds = await makeDue(request)
  await request.onDue()
  const seen = await Promise.all(paymentIds.map((id) => waitFor(context, id, request)))
  return new Map(seen.flatMap((one) => (one ? [[one.paymentId, one] as const] : [])))
}

async function makeDue<Stored>(request: SettleRequest<Stored>): Promise<readonly string[]> {
  const stored = await request.read()
  const due = await request.resume(stored)
  if (due) return due
  try {
    return await request.start(stored)
  } catch (refusal) {
    // An equal request may have been stored since, and hold the balance or the nonce that this one lacks.
    const twin = await request.resume(await request.read())
    if (twin) return twin
    throw refusal
  }
}

/** Only the caller who waits needs payments of these sources, so they may be voided for it. */
const voidable: readonly SettlementProgress['source'][] = ['submission', 'facilitator']

/**
 * Waits for one payment.
 *
 * A caller is refused only if that stays true, even after a reorg. So a payment that its payer has cancelled or used otherwise, or that
 * isn't sent in time, is voided by the statement that finds it in no batch. A payment that a block may still contain isn't.
 */
async function waitFor(
  { watch, sql, now, stopping }: HttpContext,
  paymentId: string,
  { policy, connection, submission }: Pick<SettleRequest<unknown>, 'policy' | 'connection' | 'submission'>,
): Promise<SettlementProgress | undefined> {
  const { answerMs, voidMs } = policy
  const began = performance.now()
  const statusOf = (one: SettlementProgress) => verdictOf(one, { submission }).status
  const isOver = (one: SettlementProgress) => ['settled', 'failed'].includes(statusOf(one))
  const isEnough = (one: SettlementProgress) => isOver(one) || policy.isEnough(statusOf(one))
  const until = (ms: number, isMet: (one: SettlementProgress) => boolean) =>
    watch.wait(paymentId, began + ms, (one) => connection.isClosed() || isMet(one))

  const isReached = (one: SettlementProgress) => isEnough(one) || isUsedUp(one.state)
  let progress = await until(Math.min(answerMs, voidMs), isReached)
  if (progress && statusOf(progress) === 'queued' && Number.isFinite(voidMs))
    progress = await until(voidMs, (one) => isReached(one) || statusOf(one) !== 'queued')
  if (progress === undefined || isOver(progress) || connection.isClosed() || stopping.aborted) return progress

  const isDue = isUsedUp(progress.state) || performance.now() >= began + voidMs
  if (isDue && voidable.includes(progress.source) && (await giveUpUnsent(sql, paymentId, now())))
    return until(0, isEnough)
  return isEnough(progress) ? progress : until(answerMs, isEnough)
}
