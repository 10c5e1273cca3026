import type { Database } from '@tollkeeper/ledger/store/database'

/** The result of a call: a challenge was returned, the payment was accepted, or the code of the refusal. */
export type UsageOutcome = 'challenged' | 'paid' | (string & {})

export type UsageCounters = {
  /** Counts a call in memory, without I/O. */
  count(endpoint: { providerId: string; endpointId: string }, outcome: UsageOutcome): void
  /** Adds the counts to the database. Counts that can't be written are kept for the next flush. @throws the database's error */
  flush(): Promise<void>
}

export type UsageCountersOptions = {
  sql: Database
  /** Unix milliseconds. */
  now?: () => number
}

type Count = { providerId: string; endpointId: string; hour: Date; outcome: string; calls: number }

const hourMs = 3_600_000

/** Counts calls without a write per request. A crash loses the counts since the last flush. */
export function createUsageCounters(options: UsageCountersOptions): UsageCounters {
  const { sql, now = Date.now } = options
  let counts = new Map<string, Count>()
  let flushing: Promise<void> = Promise.resolve()

  function add(count: Count): void {
    const key = `${count.endpointId} ${count.hour.getTime()} ${count.outcome}`
    const known = counts.get(key)
    if (known) known.calls += count.calls
    else counts.set(key, count)
  }

  async function flushNow(): Promise<void> {
    if (counts.size === 0) return
    const taken = [...counts.values()]
    counts = new Map()
    try {
      // Insert in the order of the key. Processes that flush at the same time then lock rows in the same order, so they wait and don't deadlock.
      await sql`
        insert into usage as u (provider_id, period, starts_at, endpoint_id, outcome, calls)
        select provider_id, period, date_trunc(period, hour, 'UTC'), endpoint_id, outcome, sum(calls)
        from unnest(
          ${taken.map(({ providerId }) => providerId)}::text[],
          ${taken.map(({ hour }) => hour.toISOString())}::timestamptz[],
          ${taken.map(({ endpointId }) => endpointId)}::text[],
          ${taken.map(({ outcome }) => outcome)}::text[],
          ${taken.map(({ calls }) => String(calls))}::bigint[]
        ) as counted (provider_id, hour, endpoint_id, outcome, calls)
        cross join (values ('hour'), ('day'), ('month')) as periods (period)
        group by 1, 2, 3, 4, 5
        order by 1, 2, 3, 4, 5
        on conflict (provider_id, period, starts_at, endpoint_id, outcome) do update set calls = u.calls + excluded.calls`
    } catch (error) {
      for (const count of taken) add(count)
      throw error
    }
  }

  const flush = () => {
    flushing = flushing.catch(() => {}).then(flushNow)
    return flushing
  }

  return {
    count({ providerId, endpointId }, outcome) {
      const hour = new Date(Math.floor(now() / hourMs) * hourMs)
      add({ providerId, endpointId, hour, outcome, calls: 1 })
    },
    flush,
  }
}
