import {
  type ChallengeDiscovery,
  discoveryOf,
  type Interface,
  type ServiceMetadata,
} from '@tollkeeper/ledger/discovery/bazaar'
import { isClosed } from '@tollkeeper/ledger/registry/suspendProvider'
import type { Database } from '@tollkeeper/ledger/store/database'
import { isId } from '@tollkeeper/ledger/store/identifiers'
import { createCache } from '@tollkeeper/runtime/cache'
import type { Address } from 'viem'
import { type Method, maxEndpoints } from './endpoints.ts'
import { createRouteTable, parseRoute, type Route, type RouteTable } from './routeTable.ts'

/** What a challenge is made from: an endpoint, its payees, and what its provider requires of callers. */
export type Offer = {
  endpointId: string
  providerId: string
  method: Method
  url: string
  /** USDC base units. */
  price: bigint
  description: string
  mimeType: string
  /** The wallets that it is paid to, one for each network; the first is the default. All are on test networks, or none. */
  payees: { chainId: number; payTo: Address }[]
  requiresKey: boolean
  /** What a challenge says for discovery; null: it isn't listed. */
  discovery: ChallengeDiscovery | null
  /** Why it gets no new challenges; null: it does. */
  disabled: 'endpoint_disabled' | 'provider_disabled' | null
}

export type Offers = {
  ofEndpoint(endpointId: string): Promise<Offer | undefined>
  /**
   * The most specific endpoint registered for a path and method; see `RouteTable`. For one path, an endpoint for the method itself
   * goes before one for `*`. A disabled one keeps its place, so that nothing is sold as something else.
   */
  ofRoute(providerId: string, method: string, path: string): Promise<Offer | undefined>
}

export type OffersOptions = {
  sql: Database
  /** Whether challenges have fields for discovery. */
  discovery: boolean
  /** How long an offer may be served after its registration has changed. */
  ttlMs: number
  now: () => number
}

const maxEntries = 50_000
const maxTables = 2_000
/**
 * Most bytes of cached offers, about, and most routes of cached tables: whoever registers endpoints for nothing can have challenges of all
 * of them made.
 */
const maxOfferBytes = 67_108_864
const maxRoutes = 200_000
/** About what an offer takes besides its fields for discovery. */
const offerBytes = 1_000

type RegisteredRoute = { endpointId: string; method: Method; route: Route }

/** Looks up offers through a short-lived cache, so that most challenges cost no query. */
export function createOffers({ sql, discovery: isListing, ttlMs, now }: OffersOptions): Offers {
  const select = sql`
    select e.id as "endpointId", e.provider_id as "providerId", e.method, e.url, e.price, e.description,
      e.mime_type as "mimeType", p.requires_key as "requiresKey", e.listed and p.listed as listed,
      e.input_schema as "inputSchema", e.output_schema as "outputSchema", e.input_example as "inputExample",
      e.output_example as "outputExample", p.service_name as "serviceName", p.tags, p.icon_url as "iconUrl",
      case
        when ${isClosed(sql)} then 'provider_disabled'
        when e.disabled_at is not null then 'endpoint_disabled'
      end as disabled,
      (
        select jsonb_agg(jsonb_build_object('chainId', w.chain_id, 'payTo', w.address) order by paid.place, w.chain_id)
        from (
          select 0 as place, e.wallet_id
          union all
          select 1, wallet_id from endpoint_wallet further where further.endpoint_id = e.id
        ) paid
        join wallet w on w.id = paid.wallet_id
      ) as payees
    from endpoint e
    join provider p on p.id = e.provider_id`

  const shared = { ttlMs, refreshAfterMs: ttlMs / 2, max: maxEntries, now }

  const endpoints = createCache<string, Offer | undefined>({
    ...shared,
    maxSize: maxOfferBytes,
    // Objects take several times the bytes of their JSON.
    sizeOf: (offer) => offerBytes + 4 * JSON.stringify(offer?.discovery ?? null).length,
    load: async (endpointId) => {
      const [row] = await sql<OfferRow[]>`
        ${select} where e.id = ${endpointId}`
      return row && toOffer(row, isListing)
    },
  })

  const tables = createCache<string, RouteTable<RegisteredRoute> | undefined>({
    ...shared,
    max: maxTables,
    maxSize: maxRoutes,
    sizeOf: (table) => table?.size ?? 0,
    load: async (providerId) => {
      const rows = await sql<{ endpointId: string; method: Method; url: string }[]>`
        select distinct on (method, shape) id as "endpointId", method, url from endpoint
        where provider_id = ${providerId}
        order by method, shape, disabled_at desc nulls first
        limit ${maxEndpoints}`
      if (rows.length === 0) return undefined
      return createRouteTable(rows.map(({ url, ...row }) => ({ ...row, route: parseRoute(new URL(url)) })))
    },
  })

  async function findRoute(table: RouteTable<RegisteredRoute> | undefined, method: string, path: string) {
    const found = table?.find(
      path,
      (registered) =>
        registered.find((one) => one.method === method) ?? registered.find((one) => one.method === '*'),
    )
    return found && lookUp(endpoints, found.endpointId)
  }

  return {
    ofEndpoint: async (endpointId) => lookUp(endpoints, endpointId),
    async ofRoute(providerId, method, path) {
      if (!isId('prov', providerId)) return undefined
      const wasCached = tables.has(providerId)
      const table = await lookUp(tables, providerId)
      const offer = await findRoute(table, method, path)
      if (table === undefined || offer !== undefined || !wasCached) return offer
      // Another process may just have registered it. A caller who asks again and again for missing routes causes a read at most
      // once a millisecond for each of the provider's routes: each takes 15 microseconds.
      return findRoute(await tables.refresh(providerId, table.size), method, path)
    },
  }
}

type OfferRow = Omit<Offer, 'discovery'> & Interface & ServiceMetadata & { listed: boolean }

function toOffer(row: OfferRow, isListing: boolean): Offer {
  const { listed, inputSchema, outputSchema, inputExample, outputExample, ...rest } = row
  const { serviceName, tags, iconUrl, ...offer } = rest
  const described = { ...offer, inputSchema, outputSchema, inputExample, outputExample }
  const discovery = isListing && listed ? discoveryOf(described, { serviceName, tags, iconUrl }) : undefined
  return { ...offer, discovery: discovery ?? null }
}

/** Looks something up without caching that it is missing: another process may register it the next moment. */
async function lookUp<V>(cache: ReturnType<typeof createCache<string, V | undefined>>, key: string) {
  const value = await cache.get(key)
  if (value === undefined) cache.delete(key)
  return value
}
