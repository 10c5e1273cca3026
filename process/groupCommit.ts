import { BaseError } from '#protocol/errors'

export type GroupCommit<T, R> = {
  /** Queues one item and answers with its own result. @throws {BaseError} `overloaded` where too many wait. */
  submit(item: T): Promise<R>
}

export type GroupCommitOptions<T, R> = {
  /** Does a group's work in one transaction and gives one result an item, in order. */
  commit: (items: T[]) => Promise<R[]>
  /** Items a group, at most. */
  maxItems: number
  /** Groups under way at a time: while one waits for the disk, the next is prepared. */
  concurrency: number
  /** Number, or age, of waiting items from which a group begins while none is under way. Default: at once. */
  alone?: { items: number; afterMs: number }
  /**
   * Number, or age, of waiting items from which a group begins beside another one. Below, they gather until that one is done.
   * Default: at once.
   */
  beside?: { items: number; afterMs: number }
  /** How many items may wait for a group; a further one is refused at once. Default: any number. */
  maxWaiting?: number
  /** Whether one item may be the cause of the error. If not, as when the database is gone, all of the group fail. */
  isItemFault: (error: unknown) => boolean
}

type Waiting<T, R> = { item: T; resolve: (result: R) => void; reject: (error: unknown) => void }

/**
 * Collects items while a transaction is under way and commits them together: one round trip and one flush to disk for
 * many. A group that fails by one item's fault is done again item by item, so that a bad one fails alone.
 */
export function createGroupCommit<T, R>({
  commit,
  maxItems,
  concurrency,
  alone = { items: 1, afterMs: 0 },
  beside = { items: 1, afterMs: 0 },
  maxWaiting = Number.POSITIVE_INFINITY,
  isItemFault,
}: GroupCommitOptions<T, R>): GroupCommit<T, R> {
  let waiting: Waiting<T, R>[] = []
  let active = 0
  let scheduled = false
  let isLateAwaited = false

  async function run(group: Waiting<T, R>[]): Promise<void> {
    try {
      const results = await commit(group.map(({ item }) => item))
      group.forEach(({ resolve }, index) => {
        resolve(results[index] as R)
      })
    } catch (error) {
      if (group.length > 1 && isItemFault(error)) {
        for (const one of group) await run([one])
      } else {
        for (const { reject } of group) reject(error)
      }
    }
  }

  const gathers = () => (active === 0 ? alone : beside)

  function mayStart(): boolean {
    return active < concurrency && waiting.length >= gathers().items
  }

  function start(): void {
    scheduled = false
    while (mayStart()) startGroup()
    // The group under way may be stuck behind a lock.
    if (waiting.length === 0 || active >= concurrency || isLateAwaited) return
    isLateAwaited = true
    setTimeout(startLate, gathers().afterMs)
  }

  function startLate(): void {
    isLateAwaited = false
    if (waiting.length > 0 && active < concurrency) startGroup()
  }

  function startGroup(): void {
    const group = waiting.slice(0, maxItems)
    waiting = waiting.slice(maxItems)
    active += 1
    run(group).finally(() => {
      active -= 1
      schedule()
    })
  }

  // Once the current turn of the event loop is over, so that requests read in one turn go together.
  function schedule(): void {
    if (scheduled || waiting.length === 0 || active >= concurrency) return
    scheduled = true
    setImmediate(start)
  }

  return {
    submit: (item) =>
      new Promise((resolve, reject) => {
        if (waiting.length >= maxWaiting) return reject(new BaseError('overloaded'))
        waiting.push({ item, resolve, reject })
        schedule()
      }),
  }
}
