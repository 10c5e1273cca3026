import { z } from '@hono/zod-openapi'
import { listRegistryChanges, type RegistryChange } from '#ledger/registry/registryChanges'
import type { App } from '../http/app.ts'
import { ownersOnly } from '../http/authenticate.ts'
import { bigintField, createCursor, cutPage } from '../http/cursor.ts'
import { jsonAnswer } from '../http/problems.ts'
import { route } from '../http/route.ts'
import * as wire from '../http/wire.ts'
import type { RouteOptions } from '../routeOptions.ts'

const fields = z.record(z.string(), z.unknown())

export const registryChange = z
  .object({
    changedAt: wire.isoTime,
    by: z.string().openapi({ description: "An API key's id, or `operator`", example: 'operator' }),
    subject: z.string().openapi({ description: 'Id of the provider, wallet, endpoint or key' }),
    before: fields.nullable().openapi({ description: 'The fields that changed; null: it is new' }),
    after: fields,
  })
  .openapi('RegistryChange')

const getChanges = route('get', '/providers/{id}/changes', {
  ...ownersOnly,
  tags: ['Providers'],
  summary: 'Who changed what in the registry, and when',
  query: z.object({ limit: wire.limit, cursor: wire.cursor }),
  responses: {
    200: jsonAnswer(
      'The changes, newest first',
      z.object({ changes: z.array(registryChange), cursor: wire.cursorOut }),
    ),
  },
})

const positions = createCursor({ id: bigintField })

export function addRegistryChangeRoute(app: App, { sql }: RouteOptions): void {
  app.openapi(getChanges, async (c) => {
    const { id: providerId } = c.req.valid('param')
    const { limit = wire.defaultLimit, cursor } = c.req.valid('query')
    const list = `changes ${providerId}`
    const position = positions.read(list, cursor)
    const found = await listRegistryChanges(sql, providerId, { position, limit: limit + 1 })
    const { page, last } = cutPage(found, limit)
    return c.json(
      { changes: page.map(toChange), cursor: last && positions.write(list, { id: Number(last.id) }) },
      200,
    )
  })
}

function toChange({ changedAt, keyId, subject, before, after }: RegistryChange) {
  return { changedAt, by: keyId ?? 'operator', subject, before, after }
}
