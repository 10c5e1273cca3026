import { BaseError } from '@tollkeeper/sdk/protocol/errors'

export type GroupCommit<T, R> = {
  /** Queues one item and answers with its own result. @throws {BaseError} `overloaded` if too many wait. */
  submit(item: T): Promise<R>
}

export type GroupCommitOptions<T, R> = {
  /** Does a group's work in one transaction, and gives each item its result, in order. */
  commit: (items: T[]) => Promise<R[]>
  /** Most items of a group. */
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
  /** How many items may wait for a group; further ones are refused at once. Default: any number. */
  maxWaiting?: number
  /** The caller of an item. Callers take turns, and if too many items wait, the one with the most is refused. Default: one for all. */
  callerOf?: (item: T) => string
  /** Whether one item may have caused the error. If not, as when the database is gone, the whole group fails. */
  isItemFault: (error: unknown) => boolean
}

type Waiting<T, R> = { item: T; resolve: (result: R) => void; reject: (error: unknown) => void }

/**
 * Collects items while a transaction is under way and commits them together: one round trip and one flush to disk for
 * many. If one item may have made a group fail, the items are done again one by one, so that a bad one fails alone.
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
    // The group under way may be stuck behind a lock.
    if (waiting.length === 0 || active >= concurrency || isLateAwaited) return
    isLateAwaited = true
    setTimeout(startLate, gathers().afterMs)
  }

  function startLate(): void {
    isLateAwaited = false
    if (waiting.length > 0 && active < concurrency) startGroup()
  }

  /** The next group: each caller's first item, then each one's second. */
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

  /** Refuses the last item of the caller with the most waiting, unless that is the new item's caller. */
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

  // Runs after the current turn of the event loop, so that requests read in one turn go together.
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
