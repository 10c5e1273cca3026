import { batchGasCut, countThatFit, roomForSweeps } from '@tollkeeper/chain/gas'
import { readProgress } from '@tollkeeper/ledger/acceptance/facilitations'
import { giveUpSubmission, giveUpTogether } from '@tollkeeper/ledger/acceptance/submissions'
import type { BatchRow } from '@tollkeeper/ledger/batches/batches'
import { claimPayments } from '@tollkeeper/ledger/batches/claims'
import type { Lease } from '@tollkeeper/ledger/batches/leases'
import { countWaitingSplitters } from '@tollkeeper/ledger/batches/sweeps'
import type { HalfState } from '@tollkeeper/ledger/facts/halves'
import type { DueBatch } from '@tollkeeper/ledger/queue/dueBatches'
import { orderLanes, rememberTurn, worthOfNext } from '@tollkeeper/ledger/queue/lanes'
import { readBlocked } from '@tollkeeper/ledger/queue/quarantine'
import type { QueuedPayment } from '@tollkeeper/ledger/queue/queue'
import { deferPayments } from '@tollkeeper/ledger/queue/stages'
import type { Queryable } from '@tollkeeper/ledger/store/database'
import { countFitting, takeAlike } from '../settler/company.ts'
import type { Context } from './context.ts'
import { failPayment } from './failPayment.ts'
import { isTooDear, withoutHeld } from './holds.ts'
import { reconcileChosen } from './reconcile.ts'
import { isTokenPaused } from './tokenPause.ts'

/** How long we leave a payment alone that a stranger settled and that isn't concluded. */
const settledElsewhereMs = 15_000
/** Most looks at the queue in one step; each may find a whole batch that others settled. */
const mostRounds = 50
/** How often at most a pair goes alone so that waiting splitters can be swept. */
const sweepBesidePairsMs = 600_000
const failedAtOnce = 100

/**
 * Claims the next batch for a wallet, if a trigger has fired or something was submitted. A process's wallets take turns:
 * if two looked at once, both would want the same payments, and one would end up without a batch.
 *
 * The index must be current: a payment that it calls open counts as open until the chain itself is asked.
 */
export function claimNext(context: Context, lease: Lease): Promise<BatchRow | null> {
  const { memory } = context
  const claimed = memory.lastClaim.then(() => claimDue(context, lease))
  memory.lastClaim = claimed.catch(() => {})
  return claimed
}

async function claimDue(context: Context, lease: Lease): Promise<BatchRow | null> {
  const { settings, now, memory, checkpoint } = context
  await checkpoint('before-claim')
  await failBlocked(context)
  const turns = memory.turns.get(lease.address) ?? []
  // Payments that others settled leave the queue when they are found, so the triggers are checked again after each find.
  for (let round = 0; round < mostRounds; round++) {
    const due = (await isTokenPaused(context))
      ? []
      : await context.readDueBatches({ settings, from: lease.address, now: now() })
    if (due.length > 0 && (await isTooDear(context))) return null
    let isOver = true
    for (const lane of orderLanes(worthOfNext(due.map(withWorth)), turns)) {
      // The wallet stays free meanwhile: a batch of another lane would keep it busy for the block that these callers wait for.
      if (lane === 'facilitator' && memory.pace.isGathering(lease.address)) return null
      const batch = await claimFirst(
        context,
        lease,
        due.filter((one) => one.lane === lane),
      )
      if (batch === 'look again') isOver = false
      else if (batch) {
        memory.turns.set(lease.address, rememberTurn(turns, lane))
        await checkpoint('after-claim')
        return batch
      }
    }
    if (isOver) return null
  }
  return null
}

async function claimFirst(
  context: Context,
  lease: Lease,
  due: readonly DueBatch[],
): Promise<BatchRow | null | 'look again'> {
  let result: null | 'look again' = null
  for (const { lane, group, trigger, payments } of due) {
    const isIsolated = isApart({ lane, payments })
    const alike = takeAlike(payments)
    const cut = batchGasCut - (await keptForSweeps(context, group, alike, isIsolated))
    const isForSweeps = lane === 'shared' && (await waitSplittersForPairs(context, group, payments))
    const fit = lane === 'high_value' || isForSweeps ? 1 : countFitting(alike, isIsolated, cut)
    const chosen = await withoutHeld(context, lane, lane === 'direct' ? payments : alike.slice(0, fit))
    if (chosen.length === 0) {
      result = 'look again'
      continue
    }
    const { batch, unsettleable } = await claimPayments(
      context.sql,
      lease,
      {
        batchId: context.randomBytes32(),
        token: group.token,
        feeRecipient: group.feeRecipient,
        trigger,
        lane,
        paymentIds: chosen.map(({ id }) => id),
      },
      context.now(),
    )
    if (unsettleable.length > 0) {
      // The chain shows that somebody else settled it, or that nobody can, so it leaves the queue.
      await context.sql.begin(async (tx) => {
        await deferPayments(tx, unsettleable, new Date(context.now().getTime() + settledElsewhereMs))
        await reconcileChosen(context, tx, unsettleable)
        if (lane === 'direct') await failSpoiled(context, tx, chosen, unsettleable)
      })
      result = 'look again'
    }
    if (batch && isForSweeps) context.memory.sweptBesideAt = context.now().getTime()
    if (batch) return batch
  }
  return result
}

/** Adds what its next batch brings the platform. */
function withWorth({ lane, payments }: DueBatch) {
  const alike = takeAlike(payments)
  const fit = countFitting(alike, isApart({ lane, payments }), batchGasCut)
  return { lane, worth: alike.slice(0, fit).reduce((sum, { fee }) => sum + fee, 0n) }
}

/** Whether each of its payers gets its full gas. */
function isApart({ lane, payments }: Pick<DueBatch, 'lane' | 'payments'>): boolean {
  return lane === 'quarantined' || payments[0]?.hasCode === true
}

/**
 * Whether splitters wait while only pairs are due, whose contract function sweeps nothing. Then the most urgent pair goes alone:
 * its provider's half as a single authorization beside the sweeps, and its fee later.
 */
async function waitSplittersForPairs(
  { sql, now, memory }: Context,
  { chainId, token, feeRecipient: platform }: DueBatch['group'],
  payments: readonly QueuedPayment[],
): Promise<boolean> {
  if (payments[0]?.isPair !== true || !payments.every(({ isPair, isRefund }) => isPair || isRefund))
    return false
  if (now().getTime() - memory.sweptBesideAt < sweepBesidePairsMs) return false
  return (await countWaitingSplitters(sql, { chainId, token, platform }, now())) > 0
}

/** The gas that a batch leaves to sweeps for which splitters have waited; 0 if there is room anyway. */
async function keptForSweeps(
  { sql, now }: Context,
  { chainId, token, feeRecipient: platform }: DueBatch['group'],
  payments: QueuedPayment[],
  isIsolated: boolean,
): Promise<bigint> {
  const least = batchGasCut - roomForSweeps(Number.MAX_SAFE_INTEGER)
  // Only one function of the contracts sweeps.
  if (payments.some(({ isPair, tab }) => isPair || tab)) return 0n
  if (countThatFit(payments, isIsolated, least) === payments.length) return 0n
  return roomForSweeps(await countWaitingSplitters(sql, { chainId, token, platform }, now()))
}

/** Fails submissions of which a part can't be settled any more, since they settle whole or not at all. */
async function failSpoiled(
  { now }: Context,
  tx: Queryable,
  payments: readonly QueuedPayment[],
  unsettleable: readonly string[],
): Promise<void> {
  const progress = await readProgress(tx, unsettleable)
  const spoiled = [...progress.values()].find(({ state }) => state !== 'settled')
  if (!spoiled) return
  const ids = payments.map(({ id }) => id)
  await giveUpTogether(tx, ids, { code: spoiledCodes[spoiled.state], now: now() })
}

/** Why a half can't be settled any more, by its state in the record: an open one has expired. */
const spoiledCodes: Record<HalfState, string> = {
  settled: 'authorization_used',
  foreign_use: 'authorization_used',
  cancelled: 'authorization_cancelled',
  open: 'authorization_expired',
}

/** Fails, unsent, what waits of payers whose payments failed on chain too often after the simulation passed. */
async function failBlocked(context: Context): Promise<void> {
  const { sql, served, now } = context
  const { chainId } = served.network
  const blocked = await readBlocked(sql, { chainId, token: served.token }, failedAtOnce)
  if (blocked.length === 0) return
  const code = 'invalid_signature'
  const detail = 'payments of this payer passed the simulation and failed on chain'
  await sql.begin(async (tx) => {
    for (const { paymentId, submission } of blocked) {
      await failPayment(context, tx, { paymentId, batchId: null, code, detail, isFinal: true })
      if (submission !== null) await giveUpSubmission(tx, submission, { code, now: now() })
    }
  })
}
