/**
 * What waits for a wallet, by what can't share a transaction.
 *
 * - `facilitator`: what callers of POST /settle wait for
 * - `shared`: payers without code, as many as fit
 * - `code`: payers with code, each budgeted in full
 * - `high_value`, `direct`: each alone, or with what it was submitted with
 * - `quarantined`: payers whose payments failed on chain after the simulation let them pass
 */
export const lanes = ['facilitator', 'shared', 'high_value', 'direct', 'code', 'quarantined'] as const
export type Lane = (typeof lanes)[number]

/**
 * In which order lanes that have something due are tried. Where somebody waits for an answer, that has every second
 * transaction of a wallet; of the rest, what most payers share has every second one, however much the others bring, and the
 * others take turns. So none of them goes twice in a row while anybody else waits.
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
    .filter((lane) => lane !== 'shared' && due.has(lane))
    .toSorted((a, b) => served.lastIndexOf(a) - served.lastIndexOf(b))
  if (!due.has('shared')) return longestAgo
  return last === 'shared' ? [...longestAgo, 'shared'] : ['shared', ...longestAgo]
}
