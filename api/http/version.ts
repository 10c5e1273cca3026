import { isDeepStrictEqual } from 'node:util'
import { z } from '@hono/zod-openapi'
import type { Context } from 'hono'
import { Refusal } from './refusal.ts'

/*
 * Keeps two people from overwriting each other's change unknowingly: a change names the version that its author saw
 * (RFC 9110 section 13.1.1, RFC 6585 section 3).
 */

export const version = z
  .int()
  .openapi({ description: 'Goes up with each change; `ETag` and `If-Match` carry it' })

/** What the request of a change declares. */
export const ifMatch = z.object({
  'if-match': z.string().max(200).optional().openapi({
    description: 'The version that is changed, as in `ETag`; `*` for whatever it is',
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
  throw new Refusal('precondition_failed', `It is at version ${version} now`, { details: { version } })
}

/** Whether a change leaves everything as it was, and so makes no new version. */
export function isUnchanged<T extends object>(before: T, after: Partial<T>): boolean {
  return Object.entries(after).every(([name, value]) => isDeepStrictEqual(before[name as keyof T], value))
}
