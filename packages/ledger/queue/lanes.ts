/**
 * Groups of payments that can't share a wallet's transaction.
 *
 * - `facilitator`: payments that callers of POST /settle wait for
 * - `shared`: payers without code, as many as fit
 * - `tab`: tabs, which TabSettlement settles; tabs of payers with code go in separate batches
 * - `code`: payers with code, each with its full gas limit
 * - `high_value`: a single payment
 * - `submission`: the payments of one POST /submit, all together
 * - `isolated`: payers whose payments failed on chain after their simulation passed
 */
export const lanes = ['facilitator', 'shared', 'tab', 'high_value', 'submission', 'code', 'isolated'] as const
export type Lane = (typeof lanes)[number]

/** Number of a wallet's last batches whose lanes are remembered. A restart forgets them, and then the wallet begins with the shared lane. */
const rememberedTurns = 10

/** Adds a turn to a wallet's last lanes, the latest last. */
export function rememberTurn(turns: readonly Lane[], lane: Lane): Lane[] {
  return [...turns, lane].slice(-rememberedTurns)
}

/** Maximum number of turns that the more valuable of the two main lanes may take in a row while the other one waits. */
const mostInARow = 2

/**
 * Orders the lanes that have something due and may begin a batch (`mayBeginLane`). The `facilitator` lane, where a caller waits for an answer, has
 * every second turn of a wallet. Half of the remaining turns go to the main lanes `shared` and `tab`, which hold nearly all payments. The other half
 * go to the other lanes in rotation, regardless of their value. Of the two main lanes, the lane with the more valuable next batch goes first, but
 * the other main lane has at least every third of their turns.
 *
 * @param due the value of each lane's next batch: the platform's part of it, in USDC base units.
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
  // A lane's first due batch is its next batch.
  const worthOfNext = new Map(due.toReversed().map(({ lane, worth }) => [lane, worth]))
  return orderLanes(worthOfNext, served).flatMap((lane) => due.filter((one) => one.lane === lane))
}

/** The fields that determine the lane of a payment that no caller waits for. */
export type LaneKind = { isHighValue: boolean; isIsolated: boolean; isTab: boolean; hasCode: boolean }

/** Returns the lane of a payment that no caller waits for. */
export function laneOf({ isHighValue, isIsolated, isTab, hasCode }: LaneKind): Lane {
  if (isIsolated) return 'isolated'
  if (isHighValue) return 'high_value'
  if (isTab) return 'tab'
  return hasCode ? 'code' : 'shared'
}

/**
 * Groups by lane the payments that no caller waits for. Tabs of payers with code form a separate group in their lane. Only the first payment of each
 * isolated payer is included, because such a payer's failures are counted by transaction.
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
