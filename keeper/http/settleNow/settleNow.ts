import type { SettlementProgress } from '@tollkeeper/ledger/acceptance/facilitations'
import { voidUnsent } from '@tollkeeper/ledger/results/voids'
import type { Hex } from 'viem'
import type { HttpContext } from '../context.ts'
import type { Connection } from './connection.ts'
import { isUsedUp, type VerdictStatus, verdictOf } from './verdict.ts'

// `POST /submit` and x402's `/settle` share this file: both store a request's payments as due, and wait until they have settled on chain.

/** The times for which a caller waits, in ms since the caller's payments became due. */
export type WaitPolicy = {
  /** Whether the caller can be answered once its payment has this status. A settled or failed payment always suffices. */
  isEnough: (status: VerdictStatus) => boolean
  /** The latest time at which the caller is answered. For an unsent payment it is `voidMs`, if that is later. */
  answerMs: number
  /** The time at which an unsent payment is voided, so that its caller can be refused; Infinity means never. */
  voidMs: number
}

/** A request to settle payments immediately, from any of the routes. */
export type SettleRequest<Stored> = {
  /** Reads the stored part of the request. @throws if another request holds a part of it */
  read: () => Promise<Stored>
  /** Resumes a stored request. @returns its payments, which are due, or null if a part of it must be stored first */
  resume: (stored: Stored) => Promise<readonly string[] | null>
  /** Judges the request, and stores either all of its payments as due, or none. @returns its payments @throws the reason for a refusal */
  start: (stored: Stored) => Promise<readonly string[]>
  /** Called once the request's payments are due. */
  onDue: () => Promise<void> | void
  /** The submission whose payments settle together or not at all; null if each payment settles by itself. */
  submission: Hex | null
  policy: WaitPolicy
  connection: Connection
}

/** The progress of each payment of a request, by its id. Payments that couldn't be read are missing. */
export type Progress = ReadonlyMap<string, SettlementProgress>

/**
 * Settles the payments of a request now, and waits until its caller can be answered.
 *
 * A caller that repeats the request continues to wait. Two equal requests at the same time settle once.
 *
 * @throws the reason for a refusal. Then this call has stored nothing.
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
    // In the meantime, an equal request may have been stored, and may hold the balance or the nonce that this request needs.
    const twin = await request.resume(await request.read())
    if (twin) return twin
    throw refusal
  }
}

/** Sources of payments that only the waiting caller needs. A payment of such a source may be voided when its caller stops waiting. */
const voidable: readonly SettlementProgress['source'][] = ['submission', 'facilitator']

/**
 * Waits for one payment.
 *
 * A caller is refused only if the refusal stays true, even after a reorg. So before it refuses, this function voids the payment if the payer
 * has used or cancelled the authorization, or if the payment wasn't sent in time. One SQL statement voids the payment and checks that it is in
 * no batch. A payment that may still be mined isn't voided.
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
  if (isDue && voidable.includes(progress.source) && (await voidUnsent(sql, paymentId, now())))
    return until(0, isEnough)
  return isEnough(progress) ? progress : until(answerMs, isEnough)
}
