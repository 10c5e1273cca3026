import { countTabsThatFit, countThatFit } from '@tollkeeper/chain/gas'
import type { QueuedPayment } from '@tollkeeper/ledger/queue/queue'

/** A payment, as far as it says in what company it can settle. */
export type Companion = Pick<QueuedPayment, 'isPair' | 'isRefund' | 'recipient' | 'tab'>

/**
 * Those that one call can settle. Pairs, single authorizations, and tabs of one reward each have a function of their own: the
 * most urgent's kind goes first. Refunds are too few to wait for a batch of theirs, and the function for pairs takes them as well.
 */
export function takeAlike<T extends Companion>(payments: readonly T[]): T[] {
  const first = payments.find(({ isRefund }) => !isRefund)
  const rewardOf = ({ tab }: Companion) => tab?.rewardShare ?? null
  if (first?.tab) return payments.filter((one) => one.tab && rewardOf(one) === rewardOf(first))
  return payments.filter(({ isPair, isRefund, tab }) => !tab && (isRefund || isPair === first?.isPair))
}

/** How many of those that are alike fit in a transaction, from the first on. */
export function countFitting(alike: Companion[], isIsolated: boolean, gasCut: bigint): number {
  const tabs = alike.flatMap(({ tab }) => tab ?? [])
  return tabs.length > 0 ? countTabsThatFit(tabs, isIsolated) : countThatFit(alike, isIsolated, gasCut)
}
