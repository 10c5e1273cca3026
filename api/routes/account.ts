import { createRoute } from '@hono/zod-openapi'
import type { App } from '../app.ts'
import type { Gateway } from '../http/gateway.ts'
import { jsonAnswer, problems } from '../http/problems.ts'
import { provider } from '../http/schemas.ts'
import { Refusal } from '../refusal.ts'
import { findProvider } from '../registry/providers.ts'

const getAccount = createRoute({
  method: 'get',
  path: '/account',
  summary: 'Whose API key this is',
  tags: ['Providers'],
  security: [{ apiKey: [] }],
  responses: { 200: jsonAnswer('The provider', provider), ...problems(401, 503) },
})

/** A key names its provider: who has the one needn't remember the other. */
export function addAccountRoute(app: App, { database }: Gateway): void {
  app.openapi(getAccount, async (c) => {
    const caller = c.get('caller')
    const found = caller === undefined ? undefined : await findProvider(database, caller)
    if (found === undefined) throw new Refusal('unauthorized', 'This needs an API key')
    return c.json({ ...found, createdAt: found.createdAt.toISOString() }, 200)
  })
}
