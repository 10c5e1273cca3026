import { createCache } from '@tollkeeper/runtime/cache'
import type { Database } from './database.ts'

/** The slowest answer from which we read the database's clock: a slower one may have waited in a pooler. */
const promptMs = 250
const clockTtlMs = 3_600_000
const clockRefreshMs = 60_000

export type DatabaseClock = ReturnType<typeof createDatabaseClock>

/** Reads how far a database's clock is from ours, and reads it again once in a while. */
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
    /** A time of `performance.now()` by the database's clock, Unix milliseconds, or a little earlier: never too late. Of -Infinity it is 0, which is always over. */
    at: async (ms: number): Promise<number> => Math.max(0, ms + (await ahead.get('ahead'))),
  }
}
