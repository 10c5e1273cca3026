import type { GasPrices } from '@tollkeeper/chain/gasShares'
import type { DueBatch } from '@tollkeeper/ledger/queue/dueBatches'
import { type Lane, orderByTurns } from '@tollkeeper/ledger/queue/lanes'
import type { QueuedPayment } from '@tollkeeper/ledger/queue/queue'
import type { Address } from 'viem'
import { cutBatch, type LaneInFlight, mayBeginLane } from '../settler/batchCut.ts'
import { decideGas, type GasDecision, type GasPolicy } from '../settler/gasPolicy.ts'

/**
 * A pair is a payment with two authorizations. A batch that contains only one pair can also sweep splitters. This is the minimum interval in ms
 * between two such batches.
 */
const pairAloneEveryMs = 600_000

/** The state of a network's queue from which a wallet plans its next claim. */
export type QueueSnapshot = {
  /** Empty while the token is paused. */
  due: readonly DueBatch[]
  /** Payments of blocked payers that aren't marked as failed yet. */
  blocked: ReadonlySet<string>
  /** Payments of high value whose payer has code and already has another payment in flight. */
  behindOwnPayer: ReadonlySet<string>
  /** The wallet's batches that aren't mined yet. */
  inFlight: readonly LaneInFlight[]
  /** Null if nothing is due. */
  prices: GasPrices | null
  /** For each platform wallet, the number of splitters that wait to be swept. */
  waitingSplitters: ReadonlyMap<Address, number>
  /** The lanes of the wallet's last batches, the latest last. */
  turns: readonly Lane[]
  /** Whether the wallet's next batch for callers of POST /settle still waits for more callers. */
  isGathering: boolean
  /** When a pair last settled alone so that splitters could be swept, in ms. */
  pairAloneAt: number
  /** Maximum gas of a batch. Default: the maximum of most networks. */
  gasCut?: bigint
  now: Date
}

/** A batch that a wallet may claim next. */
export type ClaimPlan = {
  due: DueBatch
  /** The payments of the batch, the most urgent first. Payments whose gas isn't covered are held instead. */
  payments: readonly QueuedPayment[]
  gas: GasDecision
  /** Whether a pair settles alone, so that its batch can sweep. */
  isPairAlone: boolean
}

/** Yields plans for a wallet's next claim. The caller carries them out in order, until one of them creates a batch. */
export function* planClaims(snapshot: QueueSnapshot, policy: GasPolicy): Generator<ClaimPlan> {
  const { prices, turns, isGathering, now } = snapshot
  if (prices === null || policy.isPriceTooHigh(prices)) return
  const cuts = cutDue(snapshot)
  for (const { lane, payments, due, isPairAlone } of orderByTurns(cuts, turns)) {
    if (lane === 'facilitator' && isGathering) continue
    const requests = payments.map((payment) => ({ ...payment, paymentId: payment.id }))
    const gas = decideGas(policy, requests, prices, { isWhole: lane === 'submission', now })
    yield { due, payments, gas, isPairAlone }
  }
}

/** Returns the due batches that may be claimed, each cut to the payments that one transaction can settle. */
function cutDue(snapshot: QueueSnapshot) {
  const { due, blocked, behindOwnPayer, inFlight, waitingSplitters, pairAloneAt, gasCut, now } = snapshot
  const mayTakePairAlone = now.getTime() - pairAloneAt >= pairAloneEveryMs
  return due
    .filter(({ lane }) => mayBeginLane(lane, inFlight, gasCut))
    .filter(({ payments }) => !payments.some(({ id }) => blocked.has(id)))
    .flatMap((one) => {
      const count = waitingSplitters.get(one.group.feeRecipient) ?? 0
      const payments = one.payments.filter(({ id }) => !behindOwnPayer.has(id))
      if (payments.length === 0) return []
      const cut = cutBatch(one.lane, payments, { count, mayTakePairAlone }, gasCut)
      return { ...cut, due: one, lane: one.lane }
    })
}
