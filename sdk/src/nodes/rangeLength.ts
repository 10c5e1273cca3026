/** The number of blocks per request, learned from a node's rejections. */
export type RangeLength = {
  /** Number of blocks of the next request. Undefined means unlimited. */
  readonly current: bigint | undefined
  /** Call it after the node rejected a range of this length. Pass the number of blocks that the node suggests, if any. */
  refuse: (length: bigint, suggested?: bigint) => void
  /** Call it after the node accepted a range of this length. */
  accept: (length: bigint) => void
}

/** Number of full ranges that the node must accept before a longer range is tried. Each failed attempt doubles the number. */
const firstPatience = 8
/** The number isn't doubled beyond this limit. */
const mostPatience = 1_024

/**
 * Creates a length that adapts to the node. After a rejection, the length becomes what the node suggests, or otherwise half. After several accepted
 * ranges, twice the length is tried, because the rejection may have concerned only one busy part of the chain. Each failed attempt doubles
 * the number of accepted ranges before the next attempt, so a permanent limit causes fewer and fewer rejected requests.
 *
 * @param most maximum number of blocks. Undefined means unlimited.
 */
export function createRangeLength(most?: bigint): RangeLength {
  let current = most
  let patience = firstPatience
  let answered = 0
  let isTrying = false

  return {
    get current() {
      return current
    },
    refuse(length, suggested) {
      // Concurrent requests of the same length are all rejected. Reduce the length only once.
      if (current !== undefined && length > current) return
      patience = isTrying ? Math.min(patience * 2, mostPatience) : patience
      isTrying = false
      answered = 0
      const half = length > 1n ? length / 2n : 1n
      current = suggested !== undefined && suggested > 0n && suggested < length ? suggested : half
    },
    accept(length) {
      if (current === undefined || length < current || current === most) return
      if (isTrying) {
        isTrying = false
        patience = firstPatience
      }
      answered += 1
      if (answered < patience) return
      answered = 0
      isTrying = true
      current = most !== undefined && current * 2n > most ? most : current * 2n
    },
  }
}
