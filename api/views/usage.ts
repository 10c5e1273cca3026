import { z } from '@hono/zod-openapi'
import type { App } from '../http/app.ts'
import { ownersOnly } from '../http/authenticate.ts'
import { createCursor, cutPage, textField, timeField } from '../http/cursor.ts'
import { jsonAnswer } from '../http/problems.ts'
import { route } from '../http/route.ts'
import * as wire from '../http/wire.ts'
import type { RouteOptions } from '../routeOptions.ts'
import { choosePeriod } from './period.ts'
import { findUsage, usageIntervals } from './usageQueries.ts'

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

const getUsage = route({
  ...ownersOnly,
  tags: ['Provider views'],
  method: 'get',
  path: '/providers/{id}/usage',
  summary: 'Calls by endpoint: challenged, paid, refused by reason',
  description: 'Calls that reached the gateway; the newest ones are added every few seconds.',
  query: usageQuery,
  responses: {
    200: jsonAnswer('The calls, newest first', usage),
  },
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
        from: period.from.toISOString(),
        to: period.to.toISOString(),
        usage: page.map(({ startsAt, ...row }) => ({ startsAt: wire.isoOrNull(startsAt), ...row })),
        cursor: last && positions.write(list, { startsAt: last.startsAt, endpointId: last.endpointId }),
      },
      200,
    )
  })
}
