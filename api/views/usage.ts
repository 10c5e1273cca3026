import { z } from '@hono/zod-openapi'
import type { Database } from '#ledger/store/database'
import type { App } from '../http/app.ts'
import { providerViews } from '../http/authenticate.ts'
import { createCursor, cutPage, textField, timeField } from '../http/cursor.ts'
import { jsonAnswer } from '../http/problems.ts'
import { route } from '../http/route.ts'
import * as wire from '../http/wire.ts'
import type { RouteOptions } from '../routeOptions.ts'
import { choosePeriod } from './period.ts'

const usageIntervals = ['hour', 'day', 'month', 'total'] as const

const usageQuery = z.object({
  interval: z.enum(usageIntervals).optional().openapi({ default: 'day' }),
  from: wire.timeFilter,
  to: wire.timeFilter,
  endpointId: wire.idFilter('ep').optional(),
  limit: wire.wholeNumber(1_000, 100),
  cursor: wire.cursor,
})

export const usage = z
  .object({
    interval: z.enum(usageIntervals),
    from: wire.isoTime,
    to: wire.isoTime,
    usage: z.array(
      z.object({
        startsAt: wire.isoTime.nullable(),
        endpointId: wire.endpointId,
        calls: z.int().openapi({ description: 'challenged + paid + all refused' }),
        challenged: z.int().openapi({ description: 'Came without a payment and got a challenge' }),
        paid: z.int(),
        refused: z.record(z.string(), z.int()).openapi({ example: { insufficient_balance: 2 } }),
      }),
    ),
    cursor: wire.cursorOut,
  })
  .openapi('Usage')

const getUsage = route('get', '/providers/{id}/usage', {
  ...providerViews,
  summary: 'Calls by endpoint: challenged, paid, refused by reason',
  description: 'Calls that reached the gateway; the newest ones are added every few seconds.',
  query: usageQuery,
  responses: { 200: jsonAnswer('The calls, newest first', usage) },
})

const positions = createCursor({ startsAt: timeField.nullable(), endpointId: textField })

export function addUsageRoute(app: App, { sql, now }: RouteOptions): void {
  app.openapi(getUsage, async (c) => {
    const { id } = c.req.valid('param')
    const query = c.req.valid('query')
    const { interval = 'day', endpointId, cursor, limit = 100 } = query
    const period = choosePeriod(interval, query, new Date(now()))
    const list = `usage ${interval}`
    const after = positions.read(list, cursor)
    const rows = await findUsage(sql, {
      ...period,
      providerId: id,
      interval,
      endpointId,
      after,
      limit: limit + 1,
    })
    const { page, last } = cutPage(rows, limit)
    return c.json(
      {
        interval,
        ...period,
        usage: page,
        cursor: last && positions.write(list, { startsAt: last.startsAt, endpointId: last.endpointId }),
      },
      200,
    )
  })
}

type UsageRow = {
  /** Start of the hour, day or month, UTC; null with `total`. */
  startsAt: Date | null
  endpointId: string
  calls: number
  challenged: number
  paid: number
  /** Number of refusals by code. */
  refused: Record<string, number>
}

type UsageQuery = {
  providerId: string
  interval: (typeof usageIntervals)[number]
  /** Whole hours in [from, to). */
  from: Date
  to: Date
  endpointId?: string | undefined
  after: UsagePosition | null
  limit: number
}

/** Where a page ended: newest interval first, then by endpoint. */
type UsagePosition = { startsAt: Date | null; endpointId: string }

/** The calls of a provider's endpoints that reached the gateway. */
async function findUsage(sql: Database, query: UsageQuery): Promise<UsageRow[]> {
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
