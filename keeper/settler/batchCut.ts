import { batchGasCut, countTabsThatFit, countThatFit, roomForSweeps } from '@tollkeeper/chain/gas'
import type { Lane } from '@tollkeeper/ledger/queue/lanes'
import type { QueuedPayment } from '@tollkeeper/ledger/queue/queue'
import type { OpenBatch } from './journal.ts'

/** The fields of a payment that decide which others can share its transaction. */
export type BatchKind = Pick<QueuedPayment, 'isPair' | 'isRefund' | 'recipient' | 'tab'>

/** A payment that may become part of a batch. `fee` is the platform's part in USDC base units. */
type Cuttable = BatchKind & Pick<QueuedPayment, 'hasCode' | 'fee'>

/** Splitters that wait to be swept. Only a batch of single authorizations can sweep. */
type WaitingSweeps = {
  count: number
  /** Whether one pair may settle alone if only pairs are due, so that its batch can sweep. */
  mayTakePairAlone: boolean
}

/** Lanes whose batches don't grow by waiting, so a wallet has several of them in flight. */
const neverGrowing: ReadonlySet<Lane> = new Set<Lane>(['high_value', 'submission'])

/** A batch of a wallet that isn't mined yet, and the gas limit of its transaction. */
export type LaneInFlight = { lane: Lane; gas: bigint }

export function toLanesInFlight(inFlight: readonly Pick<OpenBatch, 'batch' | 'offers'>[]): LaneInFlight[] {
  return inFlight.map(({ batch, offers: [highest] }) => ({ lane: batch.lane, gas: highest?.gas ?? 0n }))
}

/**
 * Whether a wallet may start a batch of a lane while it has others in flight. A lane whose batches grow while they wait has only one in
 * flight, because a second one in the same block would settle fewer payments for the same fixed gas. The other lanes may have several,
 * until these use as much gas as a full batch. Nonces are used in order, so ordinary payments would otherwise wait behind blocks full of
 * a stranger's submissions.
 *
 * @param gasCut the network's maximum gas of a batch, by `gasCutOf`. Default: the maximum of most networks.
 */
export function mayBeginLane(lane: Lane, inFlight: readonly LaneInFlight[], gasCut = batchGasCut): boolean {
  if (!neverGrowing.has(lane)) return !inFlight.some((one) => one.lane === lane)
  const gas = inFlight.reduce((sum, one) => (neverGrowing.has(one.lane) ? sum + one.gas : sum), 0n)
  return gas < gasCut
}

/** The next transaction of a lane. */
type BatchCut<Payment> = {
  payments: readonly Payment[]
  /** The platform's part of the payments, in USDC base units. */
  worth: bigint
  /** Whether a pair settles alone, so that its batch can sweep. */
  isPairAlone: boolean
}

/**
 * Returns the payments of a lane that its next transaction can settle, starting with the most urgent.
 *
 * @param gasCut the network's maximum gas of a batch, by `gasCutOf`. Default: the maximum of most networks.
 */
export function cutBatch<Payment extends Cuttable>(
  lane: Lane,
  payments: readonly Payment[],
  sweeps: WaitingSweeps,
  gasCut?: bigint,
): BatchCut<Payment> {
  const isPairAlone =
    lane === 'shared' && isOnlyPairs(payments) && sweeps.count > 0 && sweeps.mayTakePairAlone
  const taken = take(lane, payments, isPairAlone, sweeps.count, gasCut)
  return { payments: taken, worth: taken.reduce((sum, { fee }) => sum + fee, 0n), isPairAlone }
}

function take<Payment extends Cuttable>(
  lane: Lane,
  payments: readonly Payment[],
  isPairAlone: boolean,
  sweeps: number,
  gasCut?: bigint,
): readonly Payment[] {
  // A submission settles as a whole, even with payments of several kinds.
  if (lane === 'submission') return payments
  const compatible = selectCompatible(payments)
  if (lane === 'high_value' || isPairAlone) return compatible.slice(0, 1)
  // Each of these payers gets the maximum gas that it may burn.
  const isIsolated = lane === 'isolated' || payments[0]?.hasCode === true
  return compatible.slice(0, countFitting(compatible, isIsolated, sweeps, gasCut))
}

/**
 * Selects the payments that one call of a contract can settle. There are separate functions for pairs, for single authorizations and for
 * tabs with the same reward. The most urgent payment decides which one is called. Refunds are too few to fill separate batches, and the
 * function for pairs accepts them as well.
 */
export function selectCompatible<Payment extends BatchKind>(payments: readonly Payment[]): Payment[] {
  const first = payments.find(({ isRefund }) => !isRefund)
  const rewardOf = ({ tab }: BatchKind) => tab?.rewardShare ?? null
  if (first?.tab) return payments.filter((one) => one.tab && rewardOf(one) === rewardOf(first))
  return payments.filter(({ isPair, isRefund, tab }) => !tab && (isRefund || isPair === first?.isPair))
}

/** Returns how many compatible payments fit into a transaction, and leaves gas for sweeps if the called function can sweep. */
function countFitting(
  compatible: BatchKind[],
  isIsolated: boolean,
  sweeps: number,
  gasCut: bigint = batchGasCut,
): number {
  const tabs = compatible.flatMap(({ tab }) => tab ?? [])
  if (tabs.length > 0) return countTabsThatFit(tabs, isIsolated, gasCut)
  const room = compatible.some(({ isPair }) => isPair) ? 0n : roomForSweeps(sweeps, gasCut)
  return countThatFit(compatible, isIsolated, gasCut - room)
}

function isOnlyPairs(payments: readonly BatchKind[]): boolean {
  return payments[0]?.isPair === true && payments.every(({ isPair, isRefund }) => isPair || isRefund)
}
