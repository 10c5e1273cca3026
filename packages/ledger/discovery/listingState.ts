import type { Queryable } from '../store/database.ts'
import type { Catalogue } from './catalogue.ts'

/** Reasons why an endpoint isn't in the catalog, each with advice. */
const reasons = {
  catalog_off: ['This gateway has no catalog.', 'Ask its operator to turn it on (DISCOVERY).'],
  provider_suspended: ['The operator suspended the provider.', "Ask the gateway's operator."],
  provider_disabled: ['The provider disabled all its endpoints.', 'Run `tollkeeper provider enable`.'],
  provider_unlisted: [
    'The provider is kept out of the catalog.',
    'Run `tollkeeper provider update --listed`.',
  ],
  endpoint_disabled: ['The endpoint is disabled.', 'Run `tollkeeper provider endpoint enable`.'],
  endpoint_unlisted: [
    'The endpoint is kept out of the catalog.',
    'Run `tollkeeper provider endpoint update --listed`.',
  ],
  not_yet: ['It was changed just now.', 'Wait: a change shows within 10 seconds.'],
  no_room: [
    'It is left out, because its network is not served, or because it had no payment in 30 days and the provider has 100 older endpoints without a payment.',
    'Sell it once, or disable endpoints that no one buys.',
  ],
} as const satisfies Record<string, readonly [message: string, advice: string]>

export type UnlistedCode = keyof typeof reasons
export const unlistedCodes = Object.keys(reasons) as [UnlistedCode, ...UnlistedCode[]]

/** Whether an endpoint is in the catalog, and if not, why. */
export type ListingState = {
  status: 'listed' | 'not_listed'
  reasons: { code: UnlistedCode; message: string; advice: string }[]
}

/** Maximum seconds until a change appears, including the time to read the catalog. */
const settleSeconds = 10

/** Reads whether endpoints are in the catalog. @param catalogue null if the gateway has none. */
export async function readListingStates(
  sql: Queryable,
  catalogue: Pick<Catalogue, 'list'> | null,
  endpointIds: readonly string[],
): Promise<Map<string, ListingState>> {
  if (endpointIds.length === 0) return new Map()
  if (catalogue === null) return new Map(endpointIds.map((id) => [id, notListed('catalog_off')]))
  const rows = await sql<{ id: string; codes: UnlistedCode[]; isNew: boolean; isFresh: boolean }[]>`
    select e.id, e.created_at > now() - ${settleSeconds} * interval '1 second' as "isNew",
      e.updated_at > now() - ${settleSeconds} * interval '1 second' as "isFresh",
      array_remove(array[
        case when p.suspended_at is not null then 'provider_suspended' end,
        case when p.disabled_at is not null then 'provider_disabled' end,
        case when not p.listed then 'provider_unlisted' end,
        case when e.disabled_at is not null then 'endpoint_disabled' end,
        case when not e.listed then 'endpoint_unlisted' end
      ], null) as codes
    from endpoint e join provider p on p.id = e.provider_id
    where e.id = any(${endpointIds as string[]}::text[])`
  // Don't read the catalog for a new endpoint. It can't be in the cached list yet, and a list that is read now would be cached for other readers.
  const asked = new Set(rows.filter(({ codes, isNew }) => codes.length === 0 && !isNew).map(({ id }) => id))
  const listed =
    asked.size === 0
      ? []
      : await catalogue.list(({ endpointId }) => endpointId !== null && asked.has(endpointId))
  const there = new Set(listed.map(({ endpointId }) => endpointId))
  return new Map(
    rows.map(({ id, codes, isFresh }) => {
      if (codes.length > 0) return [id, notListed(...codes)]
      if (there.has(id)) return [id, { status: 'listed', reasons: [] }]
      return [id, notListed(isFresh ? 'not_yet' : 'no_room')]
    }),
  )
}

function notListed(...codes: UnlistedCode[]): ListingState {
  const named = codes.map((code) => ({ code, message: reasons[code][0], advice: reasons[code][1] }))
  return { status: 'not_listed', reasons: named }
}
