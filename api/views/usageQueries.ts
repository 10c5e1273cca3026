import type { Database } from '#ledger/store/database'

export const usageIntervals = ['hour', 'day', 'month', 'total'] as const
export type UsageInterval = (typeof usageIntervals)[number]

export type UsageRow = {
  /** Start of the hour, day or month, UTC; null with `total`. */
  startsAt: Date | null
  endpointId: string
  calls: number
  challenged: number
  paid: number
  /** By the code of the refusal. */
  refused: Record<string, number>
}

export type UsageQuery = {
  providerId: string
  interval: UsageInterval
  /** Whole hours in [from, to). */
  from: Date
  to: Date
  endpointId?: string | undefined
  after: UsagePosition | null
  limit: number
}

/** Where a page ended: newest interval first, then by endpoint. */
export type UsagePosition = { startsAt: Date | null; endpointId: string }

/** The calls of a provider's endpoints that reached the gateway. */
export async function findUsage(sql: Database, query: UsageQuery): Promise<UsageRow[]> {
  const { providerId, interval, from, to, endpointId, after, limit } = query
  const bucket = interval === 'total' ? sql`null::timestamptz` : sql`date_trunc(${interval}, hour, 'UTC')`
  const rows = await sql<{ startsAt: Date | null; endpointId: string; outcomes: Record<string, number> }[]>`
    with counted as (
      select ${bucket} as starts_at, endpoint_id, outcome, sum(calls) as calls from usage
      where provider_id = ${providerId} and hour >= ${from} and hour < ${to}
        ${endpointId === undefined ? sql`` : sql`and endpoint_id = ${endpointId}`}
      group by 1, 2, 3
    )
    select starts_at as "startsAt", endpoint_id as "endpointId", jsonb_object_agg(outcome, calls) as outcomes
    from counted
    where true ${
      after === null
        ? sql``
        : after.startsAt === null
          ? sql`and endpoint_id > ${after.endpointId}`
          : sql`and (starts_at < ${after.startsAt}
              or (starts_at = ${after.startsAt} and endpoint_id > ${after.endpointId}))`
    }
    group by starts_at, endpoint_id
    order by starts_at desc, endpoint_id
    limit ${limit}`
  return rows.map(({ startsAt, endpointId, outcomes: { challenged = 0, paid = 0, ...refused } }) => ({
    startsAt,
    endpointId,
    challenged,
    paid,
    refused,
    calls: Object.values(refused).reduce((sum, calls) => sum + calls, challenged + paid),
  }))
}
