import type { z } from '@hono/zod-openapi'
import type { Context } from 'hono'
import { invalidRequest } from './invalidRequest.ts'
import { Refusal } from './refusal.ts'

const jsonType = /^application\/(?:[\w.-]+\+)?json *(?:;|$)/i

/**
 * Reads a body by its schema, and refuses an invalid one as `app.openapi` does. Hono's validators take as long as verifying a macaroon, so
 * the routes of every payment read their bodies with this function.
 *
 * @throws {Refusal} `unsupported_media_type`, `invalid_json`, `invalid_request`, `invalid_field`
 */
export async function readJson<S extends z.ZodType>(c: Context, schema: S): Promise<z.output<S>> {
  if (!jsonType.test(c.req.header('content-type') ?? '')) throw new Refusal('unsupported_media_type')
  let json: unknown
  try {
    json = await c.req.json()
  } catch (error) {
    if (error instanceof SyntaxError) throw new Refusal('invalid_json', undefined, { cause: error })
    throw error
  }
  const parsed = schema.safeParse(json)
  if (!parsed.success) throw invalidRequest('json', parsed.error.issues)
  return parsed.data
}
