import { setTimeout as sleep } from 'node:timers/promises'
import {
  beginAnswer,
  endAnswer,
  type FacilitatedPayment,
  settleReserved,
} from '@tollkeeper/ledger/acceptance/facilitations'
import { settleMarginSeconds } from '@tollkeeper/ledger/store/settleMargin'
import { isRowFault } from '@tollkeeper/runtime/dependencies'
import { createGroupCommit } from '@tollkeeper/runtime/groupCommit'
import { BaseError } from '@tollkeeper/sdk/protocol/errors'
import type { Hex } from 'viem'
import type { HttpContext } from '../context.ts'
import type { Connection } from '../settleNow/connection.ts'
import { settleNow, type WaitPolicy } from '../settleNow/settleNow.ts'
import { describeFailure, pendingMessage, type SettlementVerdict, verdictOf } from '../settleNow/verdict.ts'
import { duplicate, Refused, reasonOf } from './reasons.ts'
import type { FacilitatorRequest } from './request.ts'
import { type FacilitatorCaller, findHeld, requireIdentifier, reserve } from './reserve.ts'

const maxGroup = 64

/**
 * Pause in ms before the next attempt in two loops: waiting until another caller has received the answer, and storing whether this caller has
 * received it.
 */
const turnMs = 50
const mostTries = 50

/** The successful result of `/settle`. */
type Settled = { transaction: Hex; batchId: Hex | null; logIndex: number | null }

/**
 * Creates the function behind POST /settle. It makes the payment due, waits until the keeper has settled the payment like any other payment,
 * and returns the transaction.
 */
export function createSettle(context: HttpContext) {
  const { sql, now, settings, checkpoint } = context
  const reserved = createGroupCommit<{ paymentId: string; caller: string }, boolean>({
    async commit(items) {
      const paymentIds = items.map(({ paymentId }) => paymentId)
      const taken = await settleReserved(sql, paymentIds, now())
      return paymentIds.map((id) => taken.has(id))
    },
    callerOf: ({ caller }) => caller,
    maxItems: maxGroup,
    concurrency: 2,
    isItemFault: isRowFault,
  })

  /** Reads the payment that holds the authorization. Returns undefined if there is none. */
  async function read(
    request: FacilitatorRequest,
    caller: FacilitatorCaller,
  ): Promise<FacilitatedPayment | undefined> {
    await requireIdentifier(sql, request)
    const held = await findHeld(sql, request)
    if (held === undefined) return undefined
    if (held === null || held.requestHash !== request.hash || held.providerId !== caller.providerId)
      throw duplicate('this authorization was sent with another request: sign a new one')
    return held
  }

  async function resume(
    request: FacilitatorRequest,
    held: FacilitatedPayment | undefined,
  ): Promise<string[] | null> {
    if (held === undefined) return null
    if (held.isReserved) await makeReservedDue(request, held)
    return [held.paymentId]
  }

  async function makeReservedDue({ authorization }: FacilitatorRequest, held: FacilitatedPayment) {
    const latest = Math.floor(now().getTime() / 1000) + settleMarginSeconds
    if (authorization.validBefore <= latest)
      throw new Refused(
        reasonOf('authorization_expired'),
        'the authorization expires before it can be mined: sign one that is valid for longer',
      )
    await reserved.submit({ paymentId: held.paymentId, caller: held.providerId ?? authorization.to })
  }

  async function start(request: FacilitatorRequest, caller: FacilitatorCaller): Promise<string[]> {
    const paymentId = await reserve(context, request, caller, 'due')
    // Null: another payment holds the authorization or the payment identifier. If the caller repeats the request, the keeper finds that payment, or
    // accepts the caller's payment if that payment has been released.
    if (paymentId === null) throw pending(request.version, null)
    return [paymentId]
  }

  /** Version 1 has no answer for a pending settlement, so its callers wait until the settlement is decided or the authorization has expired. */
  const policies: Record<1 | 2, WaitPolicy> = {
    1: { isEnough: () => false, answerMs: Number.POSITIVE_INFINITY, voidMs: settings.holdMs },
    2: { isEnough: () => false, answerMs: settings.timeoutMs, voidMs: settings.holdMs },
  }

  /**
   * Lets only one caller receive the answer that the payment is settled. A seller serves when it receives that answer, so a buyer who presents
   * the same payment again must not be served a second time. But a charged buyer must be served, so if the answer couldn't be delivered, the
   * next caller gets it.
   */
  async function tell(paymentId: string, version: 1 | 2, transaction: Hex, connection: Connection) {
    for (;;) {
      if (connection.isClosed()) throw pending(version, transaction)
      const since = await beginAnswer(sql, paymentId)
      if (since === 'told')
        throw duplicate('this payment was settled and answered before: do not serve it again', transaction)
      if (since !== 'busy') {
        void connection.delivered.then((isHeard) => endTurn(paymentId, { since, isHeard }))
        return
      }
      await sleep(turnMs)
    }
  }

  /**
   * Stores whether the answer was delivered. Retries while the database is down: if the result isn't stored in time, the next caller receives
   * the answer as well.
   */
  async function endTurn(paymentId: string, turn: { since: Date; isHeard: boolean }): Promise<void> {
    for (let tries = 1; tries <= mostTries; tries++) {
      const isDone = await endAnswer(sql, paymentId, turn).then(
        () => true,
        () => false,
      )
      if (isDone) return
      await sleep(turnMs * tries)
    }
  }

  return async (
    request: FacilitatorRequest,
    caller: FacilitatorCaller,
    connection: Connection,
  ): Promise<Settled> => {
    const { version } = request
    const [progress] = (
      await settleNow(context, {
        read: () => read(request, caller),
        resume: (held) => resume(request, held),
        start: () => start(request, caller),
        async onDue() {
          await checkpoint('after-settle-recorded')
          context.wakeIn(context.windowMs)
        },
        submission: null,
        policy: policies[version],
        connection,
      })
    ).values()
    const verdict = verdictOf(progress)
    const { txHash } = verdict
    if (progress === undefined || verdict.status !== 'settled' || txHash === null)
      throw refusalOf(verdict, version)
    await tell(progress.paymentId, version, txHash, connection)
    await checkpoint('before-settle-answer')
    return { transaction: txHash, batchId: progress.batchId, logIndex: progress.logIndex }
  }
}

/** Returns the answer while the settlement isn't decided. A caller that repeats the request continues to wait. */
function pending(version: 1 | 2, transaction: Hex | null): Error {
  if (version === 2)
    return new Refused('settlement_pending', pendingMessage, { transaction: transaction ?? '' })
  // Every verdict of version 1 is final, so this is an error instead of a verdict.
  return new BaseError('settlement_pending', pendingMessage)
}

function refusalOf(verdict: SettlementVerdict, version: 1 | 2): Error {
  if (verdict.status !== 'failed') return pending(version, verdict.txHash)
  const { code, message } = describeFailure(verdict)
  return new Refused(reasonOf(code), message)
}
