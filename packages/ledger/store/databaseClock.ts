import { createCache } from '@tollkeeper/runtime/cache'
import type { Database } from './database.ts'

/** Maximum response time in ms for reading the database's clock: a slower answer may have waited in a pooler. */
const promptMs = 250
const clockTtlMs = 3_600_000
const clockRefreshMs = 60_000

export type DatabaseClock = ReturnType<typeof createDatabaseClock>

/** Measures the difference between a database's clock and ours, and measures it again periodically. */
export function createDatabaseClock(database: Database) {
  let known: number | undefined
  const ahead = createCache<'ahead', number>({
    async load() {
      const asked = performance.now()
      const [{ at }] = await database<
        [{ at: number }]
      >`select extract(epoch from clock_timestamp())::float8 * 1000 as at`
      const answered = performance.now()
      if (known === undefined || answered - asked < promptMs) known = at - answered
      return known
    },
    ttlMs: clockTtlMs,
    refreshAfterMs: clockRefreshMs,
    max: 1,
    now: () => performance.now(),
  })
  return {
    /**
     * Converts a time of `performance.now()` to the database's clock, in Unix milliseconds. The result may be slightly early, but never
     * late. -Infinity becomes 0, which is always in the past.
     */
    at: async (ms: number): Promise<number> => Math.max(0, ms + (await ahead.get('ahead'))),
  }
}
