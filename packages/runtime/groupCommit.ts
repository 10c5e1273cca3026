import { BaseError } from '@tollkeeper/sdk/protocol/errors'

export type GroupCommit<T, R> = {
  /** Queues one item and returns its own result. @throws {BaseError} `overloaded` if too many items wait. */
  submit(item: T): Promise<R>
}

export type GroupCommitOptions<T, R> = {
  /** Processes a group in one transaction, and returns a result for each item, in order. */
  commit: (items: T[]) => Promise<R[]>
  /** Maximum number of items in a group. */
  maxItems: number
  /** Maximum number of concurrent groups. While one waits for the disk, the next one is prepared. */
  concurrency: number
  /**
   * Thresholds while no other group is in progress: a group starts once `items` items wait, or once the oldest item has waited
   * `afterMs`. Default: immediately.
   */
  alone?: { items: number; afterMs: number }
  /**
   * Thresholds while another group is in progress. Below them, items wait until that group is done. Default: a group starts
   * immediately.
   */
  beside?: { items: number; afterMs: number }
  /** Maximum number of items that may wait for a group. Further items are rejected immediately. Default: unlimited. */
  maxWaiting?: number
  /**
   * Returns the caller of an item. Callers take turns. If too many items wait, one item of the caller with the most waiting items
   * is rejected. Default: all items have the same caller.
   */
  callerOf?: (item: T) => string
  /**
   * Whether a single item may have caused the error. If not, for example because the database is unreachable, the whole group
   * fails.
   */
  isItemFault: (error: unknown) => boolean
}

type Waiting<T, R> = { item: T; resolve: (result: R) => void; reject: (error: unknown) => void }

/**
 * Collects items while a transaction is in progress and commits them together: one round trip and one flush to disk for many
 * items. If a single item may have caused a group's failure, the items are committed again one by one, so that only the invalid item fails.
 */
export function createGroupCommit<T, R>({
  commit,
  maxItems,
  concurrency,
  alone = { items: 1, afterMs: 0 },
  beside = { items: 1, afterMs: 0 },
  maxWaiting = Number.POSITIVE_INFINITY,
  callerOf,
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
    // Don't wait indefinitely for the group in progress, because it may be waiting for a lock.
    if (waiting.length === 0 || active >= concurrency || isLateAwaited) return
    isLateAwaited = true
    setTimeout(startLate, gathers().afterMs)
  }

  function startLate(): void {
    isLateAwaited = false
    if (waiting.length > 0 && active < concurrency) startGroup()
  }

  /** Returns the next group: the first item of each caller, then the second item of each caller, and so on. */
  function take(): Waiting<T, R>[] {
    if (waiting.length <= maxItems || callerOf === undefined) return waiting.splice(0, maxItems)
    const counts = new Map<string, number>()
    const turns = new Map<Waiting<T, R>, number>()
    for (const one of waiting) {
      const caller = callerOf(one.item)
      const turn = counts.get(caller) ?? 0
      counts.set(caller, turn + 1)
      turns.set(one, turn)
    }
    const turnOf = (one: Waiting<T, R>) => turns.get(one) ?? 0
    const group = waiting.toSorted((one, other) => turnOf(one) - turnOf(other)).slice(0, maxItems)
    const taken = new Set(group)
    waiting = waiting.filter((one) => !taken.has(one))
    return group
  }

  /**
   * Rejects the last item of the caller with the most waiting items, to make room for a new item.
   *
   * @returns whether it rejected an item. It rejects none if callers aren't distinguished, or if the new item's caller would then have at least as
   *   many waiting items as each other caller.
   */
  function makeRoom(item: T): boolean {
    if (callerOf === undefined) return false
    const byCaller = Map.groupBy(waiting, (one) => callerOf(one.item))
    const own = byCaller.get(callerOf(item))?.length ?? 0
    let most: Waiting<T, R>[] = []
    for (const theirs of byCaller.values()) if (theirs.length > most.length) most = theirs
    const last = most.at(-1)
    if (last === undefined || most.length <= own + 1) return false
    waiting = waiting.filter((one) => one !== last)
    last.reject(new BaseError('overloaded'))
    return true
  }

  function startGroup(): void {
    const group = take()
    active += 1
    run(group).finally(() => {
      active -= 1
      schedule()
    })
  }

  // Run this after the current turn of the event loop, so that requests that were read in one turn are committed together.
  function schedule(): void {
    if (scheduled || waiting.length === 0 || active >= concurrency) return
    scheduled = true
    setImmediate(start)
  }

  return {
    submit: (item) =>
      new Promise((resolve, reject) => {
        if (waiting.length >= maxWaiting && !makeRoom(item)) return reject(new BaseError('overloaded'))
        waiting.push({ item, resolve, reject })
        schedule()
      }),
  }
}
