import { OpenAPIHono, z } from '@hono/zod-openapi'
import { expect, test } from 'vitest'
import type { GatewayEnv } from './app.ts'
import { view } from './view.ts'

test('behavior: the id of the path, which the guards have compared with the key, is no matter of the query', async () => {
  const addTo = view('/providers/{id}/things', {
    query: z.object({ id: z.string(), page: z.string() }),
    answer: ['What was asked', z.object({ id: z.string(), page: z.string() })],
    open: () => async (asked) => asked,
  })
  const app = new OpenAPIHono<GatewayEnv>()
  addTo(app, {})
  const id = `prov_${'a'.repeat(32)}`
  const answer = await app.request(`/providers/${id}/things?id=prov_${'b'.repeat(32)}&page=2`)
  expect(await answer.json()).toEqual({ id, page: '2' })
})

test('behavior: a view is opened once for each app, with the options that it names', async () => {
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
  // @ts-expect-error without the options that `open` names
  addTo(new OpenAPIHono<GatewayEnv>(), {})
})
