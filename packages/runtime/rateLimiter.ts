import type { Sql } from 'postgres'
import type { Logger } from './log.ts'

/** Whether a request is within its limit, and how many more requests the limit permits. */
export type Allowed = { isAllowed: boolean; limit: number; remaining: number; resetSeconds: number }

export type RateLimiter = {
  /** Counts one request of `key` and returns whether it is within `limit` per minute. */
  count(key: string, limit: number): Allowed
}

const windowSeconds = 60
const syncEveryMs = 1_000
const maxKeys = 100_000

type Counter = { shared: number; pending: number }

export type RateLimiterOptions = {
  /** The database in which processes share their counts. Null: this process has no database, and uses only its own counts. */
  sql: Sql<{ bigint: bigint }> | null
  log: Logger
  /** Unix milliseconds. */
  now: () => number
}

/**
 * Counts requests in fixed windows of a minute, in memory, so that no request waits for the database. Once a second, in the
 * background, the counts are added to the shared sums, and the sums are read back. So a limit is exceeded by at most the number
 * of requests that the other processes permit within a second.
 *
 * If the database is unreachable, each process continues with its own counts, so each one permits the whole limit.
 */
export function createRateLimiter({ sql, log, now }: RateLimiterOptions): RateLimiter {
  let windowStart = 0
  let counters = new Map<string, Counter>()
  let syncedAt = 0
  let isSyncing = false

  async function sync(sql: Sql<{ bigint: bigint }>): Promise<void> {
    const window = windowStart
    const current = counters
    const changed = [...current].filter(([, { pending }]) => pending > 0)
    if (changed.length === 0) return
    const rows = changed.map(([key, { pending }]) => ({ key, count: pending }))
    const sums = await sql<{ key: string; count: bigint }[]>`
      with gone as (delete from request_count where window_start < ${window - windowSeconds})
      insert into request_count (key, window_start, count)
      select key, ${window}, count
      from json_to_recordset(${JSON.stringify(rows)}::text::json) as given (key text, count bigint)
      order by key
      on conflict (window_start, key) do update set count = request_count.count + excluded.count
      returning key, count`
    const added = new Map(rows.map(({ key, count }) => [key, count]))
    for (const { key, count } of sums) {
      const counter = current.get(key)
      if (counter === undefined) continue
      counter.shared = Number(count)
      counter.pending -= added.get(key) ?? 0
    }
  }

  function syncBehind(time: number): void {
    if (sql === null || isSyncing || time - syncedAt < syncEveryMs) return
    isSyncing = true
    syncedAt = time
    sync(sql)
      .catch((error: unknown) => log.warn({ err: error }, 'rate limits could not be shared'))
      .finally(() => {
        isSyncing = false
      })
  }

  return {
    count(key, limit) {
      const time = now()
      const start = Math.floor(time / 1000 / windowSeconds) * windowSeconds
      if (start !== windowStart) {
        windowStart = start
        counters = new Map()
      }
      let counter = counters.get(key)
      if (counter === undefined) {
        // If a client invents thousands of keys, forget the oldest ones rather than run out of memory.
        if (counters.size >= maxKeys) counters.delete(counters.keys().next().value as string)
        counter = { shared: 0, pending: 0 }
        counters.set(key, counter)
      }
      counter.pending += 1
      syncBehind(time)
      const used = counter.shared + counter.pending
      return {
        isAllowed: used <= limit,
        limit,
        remaining: Math.max(0, limit - used),
        resetSeconds: Math.max(1, Math.ceil(start + windowSeconds - time / 1000)),
      }
    },
  }
}
