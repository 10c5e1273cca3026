/** Where the time goes from a block being mined to its rows being seen: read out of what Ponder logs. */

/** The moments of a block, in the order in which they come; milliseconds since 1970. */
type Moments = {
  head?: number
  fetched?: number
  begun?: number
  handled?: number
  written?: number
  indexed?: number
}

export type Stages = {
  /** One line of Ponder's log, `debug` or finer, as JSON. */
  read: (line: string) => void
  /** The middle and the slowest of each stage over the blocks given, in milliseconds. */
  summarize: (blocks: Iterable<{ number: bigint; minedAt: number; seenAt: number }>) => string[]
}

export function createStages(): Stages {
  const byBlock = new Map<bigint, Moments>()
  /** Rows are written for one block at a time, and Ponder's line doesn't say which: the next one that is indexed. */
  let writing: Pick<Moments, 'handled' | 'written'> = {}
  return {
    read(line) {
      if (!line.startsWith('{')) return // Node's own warnings
      const entry = JSON.parse(line) as { msg: string; time: number; number?: number; duration?: number }
      const { msg, time, duration = 0 } = entry
      if (msg === 'Wrote database rows') {
        writing = { handled: Math.min(writing.handled ?? time, time - duration), written: time }
      }
      if (entry.number === undefined) return
      const number = BigInt(entry.number)
      const moments = byBlock.get(number) ?? {}
      byBlock.set(number, moments)
      if (msg === 'Received new head block') moments.head ??= time
      if (msg === 'Fetched block data') moments.fetched = time
      if (msg === 'Indexed block') {
        Object.assign(moments, writing, { begun: time - duration, indexed: time })
        writing = {}
      }
    },
    summarize(blocks) {
      const durations = new Map<string, number[]>()
      for (const { number, minedAt, seenAt } of blocks) {
        const { head, fetched, begun, handled, written, indexed } = byBlock.get(number) ?? {}
        if (!head || !fetched || !begun || !handled || !written || !indexed) continue
        const stages = {
          'mined to noticed': head - minedAt,
          'block and logs fetched': fetched - head,
          'checked and decoded': begun - fetched,
          'handlers, receipts': handled - begun,
          'rows written': written - handled,
          'reorg marks, commit': indexed - written,
          'seen in Postgres': seenAt - indexed,
          'all of it': seenAt - minedAt,
        }
        for (const [stage, ms] of Object.entries(stages)) {
          durations.set(stage, [...(durations.get(stage) ?? []), ms])
        }
      }
      return [...durations].map(([stage, values]) => {
        const sorted = values.toSorted((a, b) => a - b).map(Math.round)
        const middle = sorted[Math.floor(sorted.length / 2)]
        return `${stage.padEnd(24)} p50 ${middle}, p95 ${sorted[Math.ceil(sorted.length * 0.95) - 1]}`
      })
    },
  }
}
