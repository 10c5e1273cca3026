import { createRoute, z } from '@hono/zod-openapi'
import type { Database } from '#ledger/database'
import type { App } from '../http/app.ts'
import { ownersOnly } from '../http/authenticate.ts'
import { jsonAnswer, jsonBody, problems } from '../http/problems.ts'
import { isoTime, ofProvider, providerId, text } from '../http/wire.ts'
import { Refusal } from '../refusal.ts'
import { issueApiKey } from '../registry/apiKeys.ts'
import { findProvider, insertProvider, type Provider } from '../registry/providers.ts'
import { keyId, secretKey } from './apiKeys.ts'

const tags = ['Providers']

const newProvider = z
  .object({
    name: text(200).min(1),
    contact: text(320).optional(),
    requiresKey: z
      .boolean()
      .optional()
      .openapi({ description: "Whether /verify for this provider's endpoints takes its API key only" }),
  })
  .openapi('NewProvider')

export const provider = z
  .object({
    providerId,
    name: z.string(),
    contact: z.string().nullable(),
    requiresKey: z.boolean(),
    createdAt: isoTime,
  })
  .openapi('Provider')

const providerWithKey = provider.extend({ keyId, apiKey: secretKey }).openapi('ProviderWithKey')

const createProvider = createRoute({
  tags,
  method: 'post',
  path: '/providers',
  summary: 'Register a provider',
  request: { body: jsonBody(newProvider) },
  responses: {
    201: jsonAnswer('The provider, and its first API key', providerWithKey),
    ...problems(400, 413, 422, 429, 503),
  },
})

const getProvider = createRoute({
  ...ownersOnly,
  tags,
  method: 'get',
  path: '/providers/{id}',
  summary: 'A provider',
  request: { params: ofProvider },
  responses: { 200: jsonAnswer('The provider', provider), ...problems(401, 403, 404, 503) },
})

const getAccount = createRoute({
  tags,
  method: 'get',
  path: '/account',
  summary: 'The provider of the API key',
  security: [{ apiKey: [] }],
  responses: { 200: jsonAnswer('The provider', provider), ...problems(401, 503) },
})

export function addProviderRoutes(app: App, { sql }: { sql: Database }): void {
  app.openapi(createProvider, async (c) => {
    const { name, contact = null, requiresKey = false } = c.req.valid('json')
    const answer = await sql.begin(async (tx) => {
      const inserted = await insertProvider(tx, { name, contact, requiresKey })
      const { keyId, apiKey } = await issueApiKey(tx, inserted.providerId)
      return { ...toProvider(inserted), keyId, apiKey }
    })
    return c.json(answer, 201)
  })

  app.openapi(getProvider, async (c) => {
    const found = await findProvider(sql, c.req.valid('param').id)
    if (found === undefined) throw new Refusal('unknown_provider')
    return c.json(toProvider(found), 200)
  })

  app.openapi(getAccount, async (c) => {
    const caller = c.get('caller')
    const found = caller === undefined ? undefined : await findProvider(sql, caller)
    if (found === undefined) throw new Refusal('unauthorized', 'This needs an API key')
    return c.json(toProvider(found), 200)
  })
}

function toProvider({ createdAt, ...found }: Provider) {
  return { ...found, createdAt: createdAt.toISOString() }
}
