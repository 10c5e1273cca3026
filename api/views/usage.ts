import { z } from '@hono/zod-openapi'
import type { Database } from '@tollkeeper/ledger/store/database'
import { providerViews } from '../http/authenticate.ts'
import { createCursor, textField, timeField } from '../http/cursor.ts'
import { view } from '../http/view.ts'
import * as wire from '../http/wire.ts'
import { choosePeriod } from './period.ts'
import { isSummed } from './revenueQueries.ts'

const usageIntervals = ['hour', 'day', 'month', 'total'] as const

const usageQuery = z.object({
  interval: z.enum(usageIntervals).default('day'),
  from: wire.timeFilter,
  to: wire.timeFilter,
  endpointId: wire.idFilter('ep').optional(),
  limit: wire.wholeNumber(1_000, 100),
  cursor: wire.cursor,
})

/** Numbers of calls to an endpoint by result. */
export const usageCounts = {
  calls: z.int().openapi({ description: 'challenged + paid + all refused' }),
  challenged: z.int().openapi({ description: 'Number of calls without a payment, which got a challenge' }),
  paid: z.int(),
  refused: z.record(z.string(), z.int()).openapi({ example: { insufficient_balance: 2 } }),
}

const usageRow = z.object({
  startsAt: wire.isoTime.nullable(),
  endpointId: wire.endpointId,
  ...usageCounts,
})

export const usage = z
  .object({
    interval: z.enum(usageIntervals),
    from: wire.isoTime,
    to: wire.isoTime,
    usage: z.array(usageRow),
    cursor: wire.cursorOut,
  })
  .openapi('Usage')

const positions = createCursor({ startsAt: timeField.nullable(), endpointId: textField })

export type UsageRouteOptions = {
  sql: Database
  now: () => number
}

export const addUsageRoute = view('/providers/{id}/usage', {
  ...providerViews,
  summary: 'Calls by endpoint: challenged, paid, and refused by reason',
  description: 'Counts calls that reached the gateway. New calls are added every few seconds.',
  query: usageQuery,
  answer: ['The calls, newest first', usage],
  open:
    ({ sql, now }: UsageRouteOptions) =>
    async ({ id: providerId, ...query }) => {
      const { interval, endpointId } = query
      const period = choosePeriod(interval, query, new Date(now()))
      const filters = { ...period, providerId, interval, endpointId }
      const { rows, cursor } = await positions.page(`usage ${interval}`, query, (page) =>
        findUsage(sql, { ...filters, ...page }),
      )
      return { interval, ...period, usage: rows, cursor }
    },
})

type UsageOptions = {
  providerId: string
  interval: (typeof usageIntervals)[number]
  /** Whole intervals in [from, to); whole days for `total`. */
  from: Date
  to: Date
  endpointId?: string | undefined
  /** Only endpoints that are paid in test money, or only endpoints that are paid in real money; default: no filter. */
  testnet?: boolean | undefined
  after: UsagePosition | null
  limit: number
}

/** Position at which a page ended. Rows are ordered by interval, the newest first, then by endpoint. */
type UsagePosition = { startsAt: Date | null; endpointId: string }

/** Finds the calls of a provider's endpoints that reached the gateway. */
export async function findUsage(sql: Database, query: UsageOptions): Promise<z.input<typeof usageRow>[]> {
  const { providerId, interval, from, to, endpointId, testnet, after, limit } = query
  const bucket =
    interval === 'total' ? sql`null::timestamptz` : sql`date_trunc(${interval}, starts_at, 'UTC')`
  const rows = await sql<{ startsAt: Date | null; endpointId: string; outcomes: Record<string, number> }[]>`
    with counted as (
      select ${bucket} as starts_at, endpoint_id, outcome, sum(calls) as calls from usage
      where provider_id = ${providerId} and ${isSummed(sql, interval, from, to)}
        ${endpointId === undefined ? sql`` : sql`and endpoint_id = ${endpointId}`}
        ${testnet === undefined ? sql`` : sql`and endpoint_id in (select id from endpoint where provider_id = ${providerId} and testnet = ${testnet})`}
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
