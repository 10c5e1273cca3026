/**
 * Groups of payments that can't share a wallet's transaction.
 *
 * - `facilitator`: payments that callers of POST /settle wait for
 * - `shared`: payers without code, as many as fit
 * - `tab`: tabs, which another contract settles; payers with code apart from the others
 * - `code`: payers with code, each budgeted in full
 * - `high_value`: one payment alone
 * - `direct`: the payments of one POST /submit, all together
 * - `quarantined`: payers whose payments failed on chain after the simulation let them pass
 */
export const lanes = ['facilitator', 'shared', 'tab', 'high_value', 'direct', 'code', 'quarantined'] as const
export type Lane = (typeof lanes)[number]

/** How many of its last lanes a wallet remembers. After a restart it begins with the shared lane. */
const rememberedTurns = 10

/** A wallet's last lanes, the latest last, after one more. */
export function rememberTurn(turns: readonly Lane[], lane: Lane): Lane[] {
  return [...turns, lane].slice(-rememberedTurns)
}

/** How often in a row the dearer of the two main lanes goes while the other one waits. */
const mostInARow = 2

/**
 * Orders the lanes that have something due. The `facilitator` lane, where a caller waits for an answer, has every second
 * transaction of a wallet. Of the rest, every second one is for the main lanes `shared` and `tab`, which hold nearly all payments,
 * whatever the other lanes are worth; those take turns. Of the two main lanes the one with the dearer next batch goes first, but
 * the other has at least every third of their turns.
 *
 * @param due the worth of each lane's next batch: the platform's part of it, USDC base units.
 * @param served the lanes of the wallet's last transactions, the latest last.
 */
export function orderLanes(due: ReadonlyMap<Lane, bigint>, served: readonly Lane[]): Lane[] {
  if (due.has('facilitator')) {
    const rest = new Map(due)
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
  const main = byWorth(longestAgo.filter(isMain), due, served.filter(isMain))
  const others = longestAgo.filter((lane) => !isMain(lane))
  return last !== undefined && isMain(last) ? [...others, ...main] : [...main, ...others]
}

function byWorth(main: Lane[], due: ReadonlyMap<Lane, bigint>, served: readonly Lane[]): Lane[] {
  const [first, second] = main
  if (first === undefined || second === undefined) return main
  const isDearer = (due.get(second) ?? 0n) > (due.get(first) ?? 0n)
  const [dearer, other] = isDearer ? [second, first] : [first, second]
  const latest = served.slice(-mostInARow)
  const hadItsTurns = latest.length === mostInARow && latest.every((lane) => lane === dearer)
  return hadItsTurns ? [other, dearer] : [dearer, other]
}

/** The worth of each lane's next batch for {@link orderLanes}; a lane's first due batch is its next. */
export function worthOfNext(due: readonly { lane: Lane; worth: bigint }[]): Map<Lane, bigint> {
  return new Map(due.toReversed().map(({ lane, worth }) => [lane, worth]))
}

function isMain(lane: Lane): boolean {
  return lane === 'shared' || lane === 'tab'
}
