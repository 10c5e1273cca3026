import { setTimeout as sleep } from 'node:timers/promises'
import {
  beginTelling,
  endTelling,
  type FacilitatedPayment,
  type SettlementProgress,
  settleReserved,
} from '@tollkeeper/ledger/acceptance/facilitations'
import { giveUpUnsent } from '@tollkeeper/ledger/outcomes/voids'
import { settleMarginSeconds } from '@tollkeeper/ledger/store/settleMargin'
import { isRowFault } from '@tollkeeper/runtime/dependencies'
import { createGroupCommit } from '@tollkeeper/runtime/groupCommit'
import type { Hex } from 'viem'
import type { HttpContext } from '../context.ts'
import type { Hearer } from './hearer.ts'
import { duplicate, Refused, reasonOf } from './reasons.ts'
import type { FacilitatorRequest } from './request.ts'
import { type FacilitatorCaller, findHeld, requireIdentifier, reserve } from './reserve.ts'
import { isUsedUp } from './settlementWatch.ts'

/** A settlement that isn't decided: the same request again goes on waiting for it. */
function pending(version: 1 | 2, transaction: Hex | null): Refused {
  const reason = version === 2 ? 'settlement_pending' : null
  return new Refused(reason, 'the settlement is not confirmed yet: ask again', {
    transaction: transaction ?? '',
  })
}

const maxGroup = 64

/** Pause between two looks at whether another caller has heard it, and between two tries to store that one has. */
const turnMs = 50
const mostTries = 50

/**
 * Builds the function behind POST /settle: it makes the payment due, the keeper settles it like any other, and the caller
 * gets its transaction.
 */
export function createSettle(context: HttpContext) {
  const { sql, now, settings, watch, checkpoint } = context
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

  /** @returns the payment to wait for, which is due now. */
  async function makeDue(
    request: FacilitatorRequest,
    caller: FacilitatorCaller,
  ): Promise<FacilitatedPayment> {
    await requireIdentifier(sql, request)
    let held = await findHeld(sql, request)
    if (held === undefined) {
      await reserve(context, request, caller, 'due')
      await requireIdentifier(sql, request)
      held = await findHeld(sql, request)
      if (held === undefined) throw new Error('the payment was undone while it was stored')
    }
    if (held === null || held.requestHash !== request.hash || held.providerId !== caller.providerId)
      throw duplicate('this authorization was sent with another request')
    if (held.isReserved) {
      const latest = Math.floor(now().getTime() / 1000) + settleMarginSeconds
      if (request.authorization.validBefore <= latest)
        throw new Refused(
          reasonOf('authorization_expired'),
          'the authorization runs out before it can be mined',
        )
      await reserved.submit({
        paymentId: held.paymentId,
        caller: caller.providerId ?? request.authorization.to,
      })
    }
    return held
  }

  /**
   * Waits for an answer that stays true: the payment is settled, or never will be. If it was cancelled, used otherwise or not
   * sent in time, it is given up by the statement that finds it free; if a block may still have it, it isn't refused.
   * Then clients of version 2 are told to ask again; version 1 has no such answer, and waits until the authorization expires.
   */
  async function waitForEnd(paymentId: string, version: 1 | 2, hearer: Hearer): Promise<SettlementProgress> {
    const began = performance.now()
    const wait = async (ms: number, isEnough: (progress: SettlementProgress) => boolean) => {
      const progress = await watch.wait(paymentId, began + ms, (one) => hearer.isGone() || isEnough(one))
      if (progress === undefined || hearer.isGone()) throw pending(version, progress?.txHash ?? null)
      return progress
    }
    const isOver = (one: SettlementProgress) => hasEnded(one) || isUsedUp(one)
    let progress = await wait(version === 2 ? settings.timeoutMs : settings.holdMs, isOver)
    if (!isOver(progress) && version === 2) {
      if (progress.txHash !== null) throw pending(version, progress.txHash)
      progress = await wait(settings.holdMs, isOver)
    }
    if (!hasEnded(progress) && (await giveUpUnsent(sql, paymentId, now()))) progress = await wait(0, hasEnded)
    if (hasEnded(progress)) return progress
    progress = await wait(version === 2 ? settings.timeoutMs : Number.POSITIVE_INFINITY, hasEnded)
    if (!hasEnded(progress)) throw pending(version, progress.txHash)
    return progress
  }

  /**
   * Lets one caller hear that the payment is settled: the first one. Whoever hears it serves, so a buyer who presents the same
   * payment again must find nobody else who hears it. But a charged buyer must be served, so if nobody heard it the next caller does.
   */
  async function tell(paymentId: string, version: 1 | 2, transaction: Hex, hearer: Hearer): Promise<void> {
    for (;;) {
      if (hearer.isGone()) throw pending(version, transaction)
      const since = await beginTelling(sql, paymentId)
      if (since === 'told') throw duplicate('this payment was settled and answered before', transaction)
      if (since !== 'busy') {
        void hearer.heard.then((isHeard) => endTurn(paymentId, { since, isHeard }))
        return
      }
      await sleep(turnMs)
    }
  }

  /** Tries on while the database is away: if a turn lapsed though its caller heard, the next caller would hear it, too. */
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

  return async (request: FacilitatorRequest, caller: FacilitatorCaller, hearer: Hearer) => {
    const { paymentId } = await makeDue(request, caller)
    await checkpoint('after-settle-recorded')
    context.wakeIn(context.windowMs)
    const progress = await waitForEnd(paymentId, request.version, hearer)
    if (progress.state !== 'settled' || progress.txHash === null) throw failed(progress)
    await tell(paymentId, request.version, progress.txHash, hearer)
    await checkpoint('before-settle-answer')
    return { transaction: progress.txHash, batchId: progress.batchId, logIndex: progress.logIndex }
  }
}

/** A caller who is told that it failed doesn't serve, so it must not be settled later. */
function hasEnded({ state, isLost }: SettlementProgress): boolean {
  return state === 'settled' || isLost
}

function failed(progress: SettlementProgress): Refused {
  const { failureCode, ended } = progress
  if (isUsedUp(progress))
    return new Refused(reasonOf('authorization_used'), 'the authorization was cancelled or used otherwise')
  if (ended === 'voided') return new Refused(null, 'it could not be sent in time, and will not be sent')
  const code = failureCode ?? 'authorization_expired'
  return new Refused(reasonOf(code), `settlement failed: ${code}`)
}
