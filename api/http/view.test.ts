import { OpenAPIHono, z } from '@hono/zod-openapi'
import { expect, test } from 'vitest'
import type { GatewayEnv } from './app.ts'
import { view } from './view.ts'

test('behavior: a query parameter named `id` can’t replace the id in the path, which is checked against the caller’s key', async () => {
  const addTo = view('/providers/{id}/things', {
    query: z.object({ id: z.string(), page: z.string() }),
    answer: ['The parsed request', z.object({ id: z.string(), page: z.string() })],
    open: () => async (asked) => asked,
  })
  const app = new OpenAPIHono<GatewayEnv>()
  addTo(app, {})
  const id = `prov_${'a'.repeat(32)}`
  const answer = await app.request(`/providers/${id}/things?id=prov_${'b'.repeat(32)}&page=2`)
  expect(await answer.json()).toEqual({ id, page: '2' })
})

test('behavior: opens a view once per app, with the options that it needs', async () => {
  const opened: string[] = []
  const addTo = view('/things/{thing}', {
    params: z.object({ thing: z.string() }),
    answer: ['The thing', z.object({ thing: z.string(), shop: z.string() })],
    open: ({ shop }: { shop: string }) => {
      opened.push(shop)
      return async ({ thing }) => ({ thing, shop })
    },
  })
  const app = new OpenAPIHono<GatewayEnv>()
  addTo(app, { shop: 'here' })
  for (const thing of ['a', 'b']) {
    const answer = await app.request(`/things/${thing}`)
    expect(await answer.json()).toEqual({ thing, shop: 'here' })
  }
  expect(opened).toEqual(['here'])
  // @ts-expect-error The options that `open` reads (`shop`) are missing.
  addTo(new OpenAPIHono<GatewayEnv>(), {})
})
