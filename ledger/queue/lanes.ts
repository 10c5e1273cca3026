/**
 * The payments that wait for a wallet, in groups that can't share a transaction.
 *
 * - `facilitator`: those that callers of POST /settle wait for
 * - `shared`: payers without code, as many as fit
 * - `tab`: tabs, which another contract settles; payers with code apart from the others
 * - `code`: payers with code, each budgeted in full
 * - `high_value`: one payment alone
 * - `direct`: the payments of one POST /submit, all together
 * - `quarantined`: payers whose payments failed on chain after the simulation let them pass
 */
export const lanes = ['facilitator', 'shared', 'tab', 'high_value', 'direct', 'code', 'quarantined'] as const
export type Lane = (typeof lanes)[number]

/**
 * Orders the lanes that have something due. The `facilitator` lane, where somebody waits for an answer, has every second
 * transaction of a wallet. Of the rest, the lanes `shared` and `tab`, which hold nearly all payments, have every second one by
 * turns, however much the others bring, and the others take turns. So no lane goes twice in a row while another one waits.
 *
 * @param served the lanes of the wallet's last transactions, the latest last.
 */
export function orderLanes(due: ReadonlySet<Lane>, served: readonly Lane[]): Lane[] {
  if (due.has('facilitator')) {
    const rest = new Set(due)
    rest.delete('facilitator')
    const others = orderLanes(
      rest,
      served.filter((lane) => lane !== 'facilitator'),
    )
    return served.at(-1) === 'facilitator' ? [...others, 'facilitator'] : ['facilitator', ...others]
  }
  const last = served.at(-1)
  const longestAgo = lanes
    .filter((lane) => due.has(lane))
    .toSorted((a, b) => served.lastIndexOf(a) - served.lastIndexOf(b))
  const main = longestAgo.filter(isMain)
  const others = longestAgo.filter((lane) => !isMain(lane))
  return last !== undefined && isMain(last) ? [...others, ...main] : [...main, ...others]
}

function isMain(lane: Lane): boolean {
  return lane === 'shared' || lane === 'tab'
}
