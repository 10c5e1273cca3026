import { setTimeout as sleep } from 'node:timers/promises'
import {
  beginTelling,
  endTelling,
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

/** Pause between two looks at whether another caller has received the answer, and between two tries to store that one has. */
const turnMs = 50
const mostTries = 50

/** What `/settle` answers with success. */
type Settled = { transaction: Hex; batchId: Hex | null; logIndex: number | null }

/**
 * Builds the function behind POST /settle: it makes the payment due, the keeper settles it like any other, and the caller
 * gets its transaction.
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

  /** Reads the payment that holds the authorization; undefined: there is none. */
  async function read(
    request: FacilitatorRequest,
    caller: FacilitatorCaller,
  ): Promise<FacilitatedPayment | undefined> {
    await requireIdentifier(sql, request)
    const held = await findHeld(sql, request)
    if (held === undefined) return undefined
    if (held === null || held.requestHash !== request.hash || held.providerId !== caller.providerId)
      throw duplicate('this authorization was sent with another request')
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
        'the authorization runs out before it can be mined',
      )
    await reserved.submit({ paymentId: held.paymentId, caller: held.providerId ?? authorization.to })
  }

  async function start(request: FacilitatorRequest, caller: FacilitatorCaller): Promise<string[]> {
    const paymentId = await reserve(context, request, caller, 'due')
    // Another payment held the authorization. If it still does, the next read says so; otherwise the caller may try again.
    if (paymentId === null) throw pending(request.version, null)
    return [paymentId]
  }

  /** Version 1 has no answer for what is pending, so its callers wait until the authorization has expired. */
  const policies: Record<1 | 2, WaitPolicy> = {
    1: { isEnough: () => false, answerMs: Number.POSITIVE_INFINITY, voidMs: settings.holdMs },
    2: { isEnough: () => false, answerMs: settings.timeoutMs, voidMs: settings.holdMs },
  }

  /**
   * Answers one caller that the payment is settled: the first one. Whoever receives that serves, so a buyer who presents the same
   * payment again must find no second seller who receives it. But a charged buyer must be served, so if the answer couldn't be delivered,
   * the next caller gets it.
   */
  async function tell(paymentId: string, version: 1 | 2, transaction: Hex, connection: Connection) {
    for (;;) {
      if (connection.isClosed()) throw pending(version, transaction)
      const since = await beginTelling(sql, paymentId)
      if (since === 'told') throw duplicate('this payment was settled and answered before', transaction)
      if (since !== 'busy') {
        void connection.delivered.then((isHeard) => endTurn(paymentId, { since, isHeard }))
        return
      }
      await sleep(turnMs)
    }
  }

  /** Repeats while the database is down: if a turn lapsed though its answer was delivered, the next caller would be answered, too. */
  async function endTurn(paymentId: string, turn: { since: Date; isHeard: boolean }): Promise<void> {
    for (let tries = 1; tries <= mostTries; tries++) {
      const isDone = await endTelling(sql, paymentId, turn).then(
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

/** A settlement that isn't decided: the same request again continues to wait for it. */
function pending(version: 1 | 2, transaction: Hex | null): Error {
  if (version === 2)
    return new Refused('settlement_pending', pendingMessage, { transaction: transaction ?? '' })
  // Every verdict of version 1 is final, so this is none.
  return new BaseError('settlement_pending', pendingMessage)
}

function refusalOf(verdict: SettlementVerdict, version: 1 | 2): Error {
  if (verdict.status !== 'failed') return pending(version, verdict.txHash)
  const { code, message } = describeFailure(verdict)
  return new Refused(reasonOf(code), message)
}
