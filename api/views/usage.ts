import { z } from '@hono/zod-openapi'
import type { Database } from '@tollkeeper/ledger/store/database'
import { providerViews } from '../http/authenticate.ts'
import { createCursor, textField, timeField } from '../http/cursor.ts'
import { view } from '../http/view.ts'
import * as wire from '../http/wire.ts'
import { choosePeriod } from './period.ts'

const usageIntervals = ['hour', 'day', 'month', 'total'] as const

const usageQuery = z.object({
  interval: z.enum(usageIntervals).default('day'),
  from: wire.timeFilter,
  to: wire.timeFilter,
  endpointId: wire.idFilter('ep').optional(),
  limit: wire.wholeNumber(1_000, 100),
  cursor: wire.cursor,
})

const usageRow = z.object({
  startsAt: wire.isoTime.nullable(),
  endpointId: wire.endpointId,
  calls: z.int().openapi({ description: 'challenged + paid + all refused' }),
  challenged: z.int().openapi({ description: 'Came without a payment and got a challenge' }),
  paid: z.int(),
  refused: z.record(z.string(), z.int()).openapi({ example: { insufficient_balance: 2 } }),
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
  summary: 'Calls by endpoint: challenged, paid, refused by reason',
  description: 'Calls that reached the gateway; the newest ones are added every few seconds.',
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
export async function findUsage(sql: Database, query: UsageQuery): Promise<z.input<typeof usageRow>[]> {
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
