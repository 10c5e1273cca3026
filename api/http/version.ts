import { isDeepStrictEqual } from 'node:util'
import { z } from '@hono/zod-openapi'
import type { Context } from 'hono'
import { Refusal } from './refusal.ts'

/*
 * Prevents two people from overwriting each other's change unknowingly: a change names the version that its author saw (RFC 9110 section
 * 13.1.1, RFC 6585 section 3).
 */

export const version = z
  .int()
  .openapi({ description: 'Increases with each change; `ETag` and `If-Match` contain it' })

/** The header that a request for a change must send. */
export const ifMatch = z.object({
  'if-match': z.string().max(200).optional().openapi({
    description: 'The version to change, as in `ETag`; `*` for any version',
    example: '"3"',
  }),
})

export function setVersion(c: Context, { version }: { version: number }): void {
  c.header('ETag', `"${version}"`)
}

/** @throws {Refusal} `precondition_required` without `If-Match`, `precondition_failed` for another version. */
export function requireVersion(ifMatch: string | undefined, { version }: { version: number }): void {
  if (ifMatch === undefined) throw new Refusal('precondition_required', undefined, { details: { version } })
  const named = ifMatch.split(',').map((tag) => tag.trim())
  if (named.includes('*') || named.includes(`"${version}"`)) return
  throw new Refusal(
    'precondition_failed',
    `The current version is ${version}: read it again before you change it`,
    { details: { version } },
  )
}

/** Returns whether a change leaves everything as it was, and so makes no new version. */
export function isUnchanged<T extends object>(before: T, after: Partial<T>): boolean {
  return Object.entries(after).every(([name, value]) => isDeepStrictEqual(before[name as keyof T], value))
}
