import { z } from '@hono/zod-openapi'
import { unlistedCodes } from '@tollkeeper/ledger/discovery/listingState'
import type { Proof } from '@tollkeeper/ledger/discovery/originProofs'
import { adviceOn, sellerFindings } from '@tollkeeper/ledger/discovery/sellerFindings'
import type { Queryable } from '@tollkeeper/ledger/store/database'
import { formatUsdc } from '@tollkeeper/sdk/protocol/amount'
import { Refusal } from '../http/refusal.ts'
import * as wire from '../http/wire.ts'
import { overlaps, parseRoute } from './routeTable.ts'

/*
 * How the API describes whether a URL is listed and what was found there: the schemas, and the search for the endpoints that a URL belongs
 * to.
 */

const codes = Object.keys(sellerFindings) as [string, ...string[]]

export const sellerFinding = z
  .object({
    code: z.string().openapi({ enum: codes, example: 'serves_unpaid' }),
    severity: z.enum(['error', 'warning', 'ok']).openapi({
      description:
        '`error`: not listed, or listed last; `warning`: listed, but some clients cannot find or buy it',
    }),
    message: z.string(),
    advice: z.string().nullable().openapi({ description: 'How to correct it' }),
  })
  .openapi('SellerFinding')

export const listingState = z
  .object({
    status: z.enum(['listed', 'not_listed']),
    reasons: z
      .array(z.object({ code: z.enum(unlistedCodes), message: z.string(), advice: z.string() }))
      .openapi({ description: 'Why the endpoint is not listed, and what to do' }),
  })
  .openapi('ListingState')

export const proof = z
  .object({
    status: z.enum(['unasked', 'unproven', 'proven']),
    code: z
      .string()
      .nullable()
      .openapi({
        enum: [...codes, null],
        description:
          'The fault that the last check found; null: none. If a server is down, its URL stays proven for three days',
      }),
    finding: z.string().nullable().openapi({ description: 'The finding as a sentence' }),
    advice: z.string().nullable().openapi({ description: 'How to correct it' }),
    asked_usdc: wire.decimalUsdc.nullable().openapi({
      description: 'The price in its own 402, which the catalog shows; null: unknown',
    }),
    checkedAt: wire.isoTime.nullable(),
    nextCheckAt: wire.isoTime.openapi({
      description: 'Time of the next check; if the endpoint changes, the check comes earlier',
    }),
  })
  .openapi('ListingProof')

/** Converts the stored findings about an endpoint's URL to the API's form. */
export function toProof(found: Proof | undefined) {
  if (found === undefined) return null
  const { isProven, finding, findingCode, askedAmount, checkedAt, nextCheckAt } = found
  const unproven = checkedAt === null ? ('unasked' as const) : ('unproven' as const)
  return {
    status: isProven ? ('proven' as const) : unproven,
    code: findingCode,
    finding,
    advice: adviceOn(findingCode),
    asked_usdc: askedAmount === null ? null : formatUsdc(askedAmount),
    checkedAt,
    nextCheckAt,
  }
}

/** Maximum number of a host's endpoints that are read. */
const maxOfHost = 500

export type RegisteredAt = { endpointId: string; providerId: string; url: string }

/**
 * Finds the endpoints of all providers that a URL belongs to.
 *
 * @param providerId limits the search to this provider, because all providers share the gateway's own host.
 */
export async function findRegistered(
  sql: Queryable,
  url: URL,
  method: string,
  providerId: string | null,
): Promise<RegisteredAt[]> {
  const asked = routeOf(url)
  if (asked === undefined) return []
  const rows = await sql<RegisteredAt[]>`
    select id as "endpointId", provider_id as "providerId", url from endpoint
    where md5(host) = md5(${asked.host}) and host = ${asked.host} and method in (${method}, '*')
      and (${providerId}::text is null or provider_id = ${providerId})
    order by url = ${url.href} desc, created_at, id limit ${maxOfHost}`
  return rows.filter((one) => {
    const route = routeOf(new URL(one.url))
    return route !== undefined && overlaps(asked, route)
  })
}

/** Parses a URL's path; undefined if servers may read the path differently, because such a path belongs to no endpoint. */
function routeOf(url: URL): ReturnType<typeof parseRoute> | undefined {
  try {
    return parseRoute(url)
  } catch (error) {
    if (error instanceof Refusal) return undefined
    throw error
  }
}
