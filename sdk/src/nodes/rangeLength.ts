/** How many blocks to ask for at once, learned from what a node refuses. */
export type RangeLength = {
  /** Blocks of the next question; undefined: any number. */
  readonly current: bigint | undefined
  /** Call it when the node refused a range of this length, with the number of blocks that it says would work. */
  refuse: (length: bigint, suggested?: bigint) => void
  /** Call it when the node answered a range of this length. */
  accept: (length: bigint) => void
}

/** How many full ranges must be answered before a longer one is tried: at first, and at most. */
const firstPatience = 8
const mostPatience = 1_024

/**
 * Narrows when a range is refused, to what the node suggests or else by half, and grows again by trying twice the length after
 * several answers, since a refusal may have been about one busy stretch of the chain. Each attempt in vain doubles the wait for the
 * next, so a limit that stands costs ever fewer questions.
 *
 * @param most maximum number of blocks; undefined: any number.
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
      // Questions under way at once are refused together.
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
