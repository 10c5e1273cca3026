import { OpenAPIHono, z } from '@hono/zod-openapi'
import { expect, test } from 'vitest'
import type { RouteOptions } from '../routeOptions.ts'
import type { GatewayEnv } from './app.ts'
import { view } from './view.ts'

test('behavior: the id of the path, which the guards have compared with the key, is no matter of the query', async () => {
  const addTo = view('/providers/{id}/things', {
    query: z.object({ id: z.string(), page: z.string() }),
    answer: ['What was asked', z.object({ id: z.string(), page: z.string() })],
    open: () => async (asked) => asked,
  })
  const app = new OpenAPIHono<GatewayEnv>()
  addTo(app, {} as RouteOptions)
  const id = `prov_${'a'.repeat(32)}`
  const answer = await app.request(`/providers/${id}/things?id=prov_${'b'.repeat(32)}&page=2`)
  expect(await answer.json()).toEqual({ id, page: '2' })
})
