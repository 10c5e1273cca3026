import { z } from '@hono/zod-openapi'
import { keyScopes } from '@tollkeeper/ledger/registry/apiKeys'
import { changeRegistry } from '@tollkeeper/ledger/registry/registryChanges'
import type { Database } from '@tollkeeper/ledger/store/database'
import { answerRead } from '../http/answerJson.ts'
import type { App } from '../http/app.ts'
import { changerOf, ownersOnly } from '../http/authenticate.ts'
import { jsonAnswer } from '../http/problems.ts'
import { Refusal } from '../http/refusal.ts'
import { route } from '../http/route.ts'
import * as wire from '../http/wire.ts'
import { type ApiKey, issueRecordedApiKey, listApiKeys, revokeApiKey } from './apiKeys.ts'

const owner = { ...ownersOnly, tags: ['Providers'] }

export const secretKey = z
  .string()
  .openapi({ description: 'Shown only once, because it is stored hashed', example: 'tk_…' })

export const keyScope = z.enum(keyScopes).openapi({ description: '`read`: it can only read, with `GET`' })

const newApiKey = z
  .strictObject({ label: wire.text(200).optional(), scope: keyScope.optional() })
  .openapi('NewApiKey')
export const apiKey = z
  .object({
    keyId: wire.keyId,
    label: z.string(),
    scope: keyScope,
    createdAt: wire.isoTime,
    revokedAt: wire.isoTime.nullable(),
  })
  .openapi('ApiKey')
export const issuedApiKey = z
  .object({
    keyId: wire.keyId,
    label: z.string(),
    scope: keyScope,
    createdAt: wire.isoTime,
    apiKey: secretKey,
  })
  .openapi('IssuedApiKey')

const createKey = route('post', '/providers/{id}/keys', {
  ...owner,
  summary: 'Issue another API key',
  body: newApiKey,
  responses: { 201: jsonAnswer('The key', issuedApiKey) },
})

const getKeys = route('get', '/providers/{id}/keys', {
  ...owner,
  summary: 'List API keys, without their secrets',
  responses: { 200: jsonAnswer('The keys, oldest first', z.object({ keys: z.array(apiKey) })) },
})

const revokeKey = route('delete', '/providers/{id}/keys/{keyId}', {
  ...owner,
  summary: 'Revoke an API key permanently',
  description:
    'The last usable key can be revoked only with `force=true`, because after that only the operator can issue another.',
  query: z.object({ force: z.enum(['true', 'false']).optional() }),
  refuses: [409],
  responses: { 204: { description: 'Revoked; it stops working within two seconds' } },
})

export function addApiKeyRoutes(app: App, { sql }: { sql: Database }): void {
  app.openapi(createKey, async (c) => {
    const key = await issueRecordedApiKey(sql, changerOf(c), c.req.valid('json'))
    if (key === undefined) throw new Refusal('unknown_provider')
    return c.json(key, 201)
  })

  app.openapi(getKeys, async (c) => {
    return answerRead(c, { keys: await listApiKeys(sql, c.req.valid('param').id) })
  })

  app.openapi(revokeKey, async (c) => {
    const { keyId } = c.req.valid('param')
    const { force } = c.req.valid('query')
    await changeRegistry(sql, changerOf(c), async (tx, record) => {
      const keys = await listApiKeys(tx, c.req.valid('param').id)
      const before = keys.find((key) => key.keyId === keyId)
      if (before === undefined) throw new Refusal('not_found', 'No such key')
      const isUsable = (key: ApiKey) => key.revokedAt === null && key.scope === 'full'
      const isLast = isUsable(before) && keys.filter(isUsable).length === 1
      if (isLast && force !== 'true') throw new Refusal('last_api_key')
      await record(keyId, before, await revokeApiKey(tx, keyId))
    })
    return c.body(null, 204)
  })
}
