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

/** Orders due batches by the turns of their lanes; within a lane they keep their order. See {@link orderLanes}. */
export function orderByTurns<Due extends { lane: Lane; worth: bigint }>(
  due: readonly Due[],
  served: readonly Lane[],
): Due[] {
  // A lane's first due batch is its next one.
  const worthOfNext = new Map(due.toReversed().map(({ lane, worth }) => [lane, worth]))
  return orderLanes(worthOfNext, served).flatMap((lane) => due.filter((one) => one.lane === lane))
}

/** The fields of a payment that no caller waits for which decide on its lane. */
export type LaneKind = { isHighValue: boolean; isIsolated: boolean; isTab: boolean; hasCode: boolean }

/** Returns the lane of a payment that no caller waits for. */
export function laneOf({ isHighValue, isIsolated, isTab, hasCode }: LaneKind): Lane {
  if (isIsolated) return 'quarantined'
  if (isHighValue) return 'high_value'
  if (isTab) return 'tab'
  return hasCode ? 'code' : 'shared'
}

/**
 * Groups payments that no caller waits for by lane. Tabs of payers with code are a group apart within their lane. Of each isolated payer
 * only the first payment is taken, because what such a payer may cost is counted by transactions.
 */
export function groupByLane<Payment extends LaneKind & { payer: string }>(
  payments: readonly Payment[],
): { lane: Lane; payments: Payment[] }[] {
  const isolated = new Set<string>()
  const taken = payments.filter(({ isIsolated, payer }) => {
    if (!isIsolated) return true
    if (isolated.has(payer)) return false
    isolated.add(payer)
    return true
  })
  const groups = Map.groupBy(taken, (one) => `${laneOf(one)} ${one.isTab && one.hasCode}`)
  return [...groups.values()].flatMap((group) => {
    const [first] = group
    return first ? [{ lane: laneOf(first), payments: group }] : []
  })
}

function isMain(lane: Lane): boolean {
  return lane === 'shared' || lane === 'tab'
}
