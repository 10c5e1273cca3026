import { batchGasCut, countTabsThatFit, countThatFit, roomForSweeps } from '@tollkeeper/chain/gas'
import type { Lane } from '@tollkeeper/ledger/queue/lanes'
import type { QueuedPayment } from '@tollkeeper/ledger/queue/queue'

/** The fields of a payment that decide which others can share its transaction. */
export type BatchKind = Pick<QueuedPayment, 'isPair' | 'isRefund' | 'recipient' | 'tab'>

/** A payment that may become part of a batch. `fee`: the platform's part, USDC base units. */
type Cuttable = BatchKind & Pick<QueuedPayment, 'hasCode' | 'fee'>

/** Splitters that wait to be swept. Only a batch of single authorizations can sweep. */
type WaitingSweeps = {
  count: number
  /** If only pairs are due, one of them may go alone, so that its batch can sweep. */
  mayTakePairAlone: boolean
}

/** The next transaction of a lane. */
type BatchCut<Payment> = {
  payments: readonly Payment[]
  /** The platform's part of them, USDC base units. */
  worth: bigint
  /** A pair goes alone, so that its batch can sweep. */
  isPairAlone: boolean
}

/** Returns the payments of a lane that its next transaction can settle, from the most urgent on. */
export function cutBatch<Payment extends Cuttable>(
  lane: Lane,
  payments: readonly Payment[],
  sweeps: WaitingSweeps,
): BatchCut<Payment> {
  const isPairAlone =
    lane === 'shared' && isOnlyPairs(payments) && sweeps.count > 0 && sweeps.mayTakePairAlone
  const taken = take(lane, payments, isPairAlone, sweeps.count)
  return { payments: taken, worth: taken.reduce((sum, { fee }) => sum + fee, 0n), isPairAlone }
}

function take<Payment extends Cuttable>(
  lane: Lane,
  payments: readonly Payment[],
  isPairAlone: boolean,
  sweeps: number,
): readonly Payment[] {
  // A submission settles as a whole, whatever it consists of.
  if (lane === 'direct') return payments
  const compatible = selectCompatible(payments)
  if (lane === 'high_value' || isPairAlone) return compatible.slice(0, 1)
  // Each of these payers gets as much gas as it may burn.
  const isIsolated = lane === 'quarantined' || payments[0]?.hasCode === true
  return compatible.slice(0, countFitting(compatible, isIsolated, sweeps))
}

/**
 * Selects the payments that one call of a contract can settle. Pairs, single authorizations, and tabs of one reward each have a function
 * of their own, and the most urgent payment decides which one is called. Refunds are too few to wait for a batch of theirs, and the
 * function for pairs takes them as well.
 */
export function selectCompatible<Payment extends BatchKind>(payments: readonly Payment[]): Payment[] {
  const first = payments.find(({ isRefund }) => !isRefund)
  const rewardOf = ({ tab }: BatchKind) => tab?.rewardShare ?? null
  if (first?.tab) return payments.filter((one) => one.tab && rewardOf(one) === rewardOf(first))
  return payments.filter(({ isPair, isRefund, tab }) => !tab && (isRefund || isPair === first?.isPair))
}

/** Returns how many compatible payments fit in a transaction, with room for sweeps where it has a function that sweeps. */
function countFitting(compatible: BatchKind[], isIsolated: boolean, sweeps: number): number {
  const tabs = compatible.flatMap(({ tab }) => tab ?? [])
  if (tabs.length > 0) return countTabsThatFit(tabs, isIsolated)
  const room = compatible.some(({ isPair }) => isPair) ? 0n : roomForSweeps(sweeps)
  return countThatFit(compatible, isIsolated, batchGasCut - room)
}

function isOnlyPairs(payments: readonly BatchKind[]): boolean {
  return payments[0]?.isPair === true && payments.every(({ isPair, isRefund }) => isPair || isRefund)
}
