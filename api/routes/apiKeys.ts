import { createRoute, z } from '@hono/zod-openapi'
import type { Database } from '#ledger/database'
import type { App } from '../http/app.ts'
import { ownersOnly } from '../http/authenticate.ts'
import { jsonAnswer, jsonBody, problems } from '../http/problems.ts'
import { id, isoOrNull, isoTime, ofProvider, text } from '../http/wire.ts'
import { Refusal } from '../refusal.ts'
import { type ApiKey, issueApiKey, listApiKeys, revokeApiKey } from '../registry/apiKeys.ts'

const owner = { ...ownersOnly, tags: ['Providers'] }

export const keyId = id('key')
export const secretKey = z
  .string()
  .openapi({ description: 'Shown this once; stored hashed', example: 'tk_…' })

const newApiKey = z.object({ label: text(200).optional() }).openapi('NewApiKey')
const apiKey = z
  .object({ keyId, label: z.string(), createdAt: isoTime, revokedAt: isoTime.nullable() })
  .openapi('ApiKey')
const issuedApiKey = z
  .object({ keyId, label: z.string(), createdAt: isoTime, apiKey: secretKey })
  .openapi('IssuedApiKey')

const createKey = createRoute({
  ...owner,
  method: 'post',
  path: '/providers/{id}/keys',
  summary: 'Issue a further API key',
  request: { params: ofProvider, body: jsonBody(newApiKey) },
  responses: { 201: jsonAnswer('The key', issuedApiKey), ...problems(400, 401, 403, 413, 422, 503) },
})

const getKeys = createRoute({
  ...owner,
  method: 'get',
  path: '/providers/{id}/keys',
  summary: 'API keys, without their secrets',
  request: { params: ofProvider },
  responses: {
    200: jsonAnswer('The keys, oldest first', z.object({ keys: z.array(apiKey) })),
    ...problems(401, 403, 503),
  },
})

const revokeKey = createRoute({
  ...owner,
  method: 'delete',
  path: '/providers/{id}/keys/{keyId}',
  summary: 'Revoke an API key, for good',
  request: { params: ofProvider.extend({ keyId }) },
  responses: {
    204: { description: 'Revoked; it is refused within two seconds' },
    ...problems(401, 403, 404, 503),
  },
})

export function addApiKeyRoutes(app: App, { sql }: { sql: Database }): void {
  app.openapi(createKey, async (c) => {
    const key = await issueApiKey(sql, c.req.valid('param').id, c.req.valid('json').label)
    return c.json({ ...key, createdAt: key.createdAt.toISOString() }, 201)
  })

  app.openapi(getKeys, async (c) => {
    const keys = await listApiKeys(sql, c.req.valid('param').id)
    return c.json({ keys: keys.map(toApiKey) }, 200)
  })

  app.openapi(revokeKey, async (c) => {
    const { id: provider, keyId: key } = c.req.valid('param')
    if (!(await revokeApiKey(sql, provider, key))) throw new Refusal('not_found', 'No such key')
    return c.body(null, 204)
  })
}

function toApiKey({ createdAt, revokedAt, ...key }: ApiKey) {
  return { ...key, createdAt: createdAt.toISOString(), revokedAt: isoOrNull(revokedAt) }
}
