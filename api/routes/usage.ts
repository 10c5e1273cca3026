import { createRoute, z } from '@hono/zod-openapi'
import type { App } from '../app.ts'
import { requireOwner } from '../http/authenticate.ts'
import { createCursor, cutPage, textField, timeField } from '../http/cursor.ts'
import type { Gateway } from '../http/gateway.ts'
import { jsonAnswer, problems } from '../http/problems.ts'
import { providerId } from '../http/schemas.ts'
import { choosePeriod } from '../portal/period.ts'
import { findUsage } from '../portal/queries/usage.ts'
import * as schemas from './viewSchemas.ts'

const getUsage = createRoute({
  middleware: requireOwner,
  security: [{ apiKey: [] }],
  tags: ['Provider views'],
  method: 'get',
  path: '/providers/{id}/usage',
  summary: 'Calls by endpoint: challenged, paid, refused by reason',
  description: 'Calls that reached the gateway; the newest ones are added every few seconds.',
  request: { params: z.object({ id: providerId }), query: schemas.usageQuery },
  responses: {
    200: jsonAnswer('The calls, newest first', schemas.usage),
    ...problems(400, 401, 403, 422, 503),
  },
})

const positions = createCursor({ startsAt: timeField.nullable(), endpointId: textField })

export function addUsageRoutes(app: App, { database, now }: Gateway): void {
  app.openapi(getUsage, async (c) => {
    const { id } = c.req.valid('param')
    const query = c.req.valid('query')
    const { interval = 'day', endpointId, cursor, limit = 100 } = query
    const period = choosePeriod(interval, query, new Date(now()))
    const list = `usage ${interval}`
    const after = positions.read(list, cursor)
    const rows = await findUsage(database, {
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
        usage: page.map(({ startsAt, ...row }) => ({ startsAt: startsAt?.toISOString() ?? null, ...row })),
        cursor: last && positions.write(list, { startsAt: last.startsAt, endpointId: last.endpointId }),
      },
      200,
    )
  })
}
