import { createCache } from '#process/cache'
import type { Database } from './database.ts'

/** The slowest answer from which we read the database's clock: a slower one may have waited in a pooler. */
const promptMs = 250
const clockTtlMs = 3_600_000
const clockRefreshMs = 60_000

export type DatabaseClock = {
  /** Converts a time of `performance.now()` to the database's clock, Unix ms: never later, perhaps a little earlier. -Infinity gives 0. */
  at(ms: number): Promise<number>
}

/** Measures how far a database's clock is from ours, and measures again once in a while. */
export function createDatabaseClock(database: Database): DatabaseClock {
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
  return { at: async (ms) => Math.max(0, ms + (await ahead.get('ahead'))) }
}
