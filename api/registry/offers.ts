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
import { Refusal } from '../http/refusal.ts'
import { type Method, maxEndpoints } from './endpoints.ts'
import { createRouteTable, parseRoute, type Route, type RouteTable } from './routeTable.ts'

/** Everything needed to issue a challenge: an endpoint, its payees, and what its provider requires of callers. */
export type Offer = {
  endpointId: string
  providerId: string
  method: Method
  url: string
  /** USDC base units. */
  price: bigint
  description: string
  mimeType: string
  /** The wallets that it is paid to, one for each network; the first is the default. Either all of them or none are on test networks. */
  payees: { chainId: number; payTo: Address }[]
  requiresKey: boolean
  /** Whether its provider's hook is asked before a payment is accepted. */
  hasHook: boolean
  /** Fields of the challenge for discovery; null: it isn't listed. */
  discovery: ChallengeDiscovery | null
  /** Why it gets no new challenges; null: it is enabled. */
  disabled: 'endpoint_disabled' | 'provider_disabled' | null
  /** The provider's display name. */
  seller: string
}

export type Offers = {
  ofEndpoint(endpointId: string): Promise<Offer | undefined>
  /**
   * Returns the most specific endpoint registered for a host, path and method; see `RouteTable`. For one path, an endpoint for the method
   * itself takes precedence over one for `*`. A disabled endpoint still matches, so that its requests are not sold as another endpoint.
   *
   * @throws {Refusal} `endpoint_ambiguous` if the host isn't known, and endpoints of several hosts match.
   */
  ofRoute(providerId: string, asked: AskedRoute): Promise<Offer | undefined>
}

export type AskedRoute = {
  method: string
  /** The host named in the seller's own configuration; null: none. It never comes from the request, because the buyer controls the request. */
  host: string | null
  /** The path in the form of `pathOf` in routeTable.ts. */
  path: string
}

export type OffersOptions = {
  sql: Database
  /** Whether challenges have fields for discovery. */
  discovery: boolean
  /** Maximum time in ms for which an old offer may be served after its registration has changed. */
  ttlMs: number
  now: () => number
}

const maxEntries = 50_000
const maxTables = 2_000
/**
 * Approximate maximum size of cached offers in bytes; also limits the routes of cached tables. Anyone can register endpoints for free and
 * request challenges for all of them.
 */
const maxOfferBytes = 67_108_864
const maxRoutes = 200_000
/** Approximate size of an offer without its fields for discovery. */
const offerBytes = 1_000

type RegisteredRoute = {
  endpointId: string
  method: Method
  isDisabled: boolean
  testnet: boolean
  route: Route
}

/** Creates a lookup of offers with a short-lived cache, so that most challenges need no query. */
export function createOffers({ sql, discovery: isListing, ttlMs, now }: OffersOptions): Offers {
  const select = sql`
    select e.id as "endpointId", e.provider_id as "providerId", e.method, e.url, e.price, e.description,
      e.mime_type as "mimeType", p.requires_key as "requiresKey", h.provider_id is not null as "hasHook", e.listed and p.listed as listed,
      e.input_schema as "inputSchema", e.output_schema as "outputSchema", e.input_example as "inputExample",
      e.output_example as "outputExample", p.service_name as "serviceName", p.tags, p.icon_url as "iconUrl",
      coalesce(p.service_name, p.name) as seller,
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
    join provider p on p.id = e.provider_id
    left join accept_hook h on h.provider_id = e.provider_id`

  const shared = { ttlMs, refreshAfterMs: ttlMs / 2, max: maxEntries, now }

  const endpoints = createCache<string, Offer | undefined>({
    ...shared,
    maxSize: maxOfferBytes,
    // Objects take several times as much memory as their JSON.
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
      const rows = await sql<(Omit<RegisteredRoute, 'route'> & { url: string })[]>`
        select distinct on (host, method, shape) id as "endpointId", method, url, testnet, disabled_at is not null as "isDisabled"
        from endpoint where provider_id = ${providerId}
        order by host, method, shape, disabled_at desc nulls first
        limit ${maxEndpoints}`
      if (rows.length === 0) return undefined
      return createRouteTable(rows.map(({ url, ...row }) => ({ ...row, route: parseRoute(new URL(url)) })))
    },
  })

  async function findRoute(table: RouteTable<RegisteredRoute> | undefined, asked: AskedRoute) {
    const found = table && chooseRoute(table, asked)
    return found && lookUp(endpoints, found.endpointId)
  }

  return {
    ofEndpoint: async (endpointId) => lookUp(endpoints, endpointId),
    async ofRoute(providerId, asked) {
      if (!isId('prov', providerId)) return undefined
      const wasCached = tables.has(providerId)
      const table = await lookUp(tables, providerId)
      const offer = await findRoute(table, asked)
      if (table === undefined || offer !== undefined || !wasCached) return offer
      // Another process may just have registered the route. A table is read again only once it is as many milliseconds old as it has routes. Reading
      // a route takes 15 microseconds, so callers that keep asking for missing routes cost little.
      return findRoute(await tables.refresh(providerId, table.size), asked)
    },
  }
}

/**
 * Chooses the endpoint of a request. If anything is registered on the host that the seller names, only that host counts. Otherwise, for
 * example behind a proxy where the seller names no host, all hosts count, and the path must match on only one of them.
 *
 * @throws {Refusal} `endpoint_ambiguous` if several endpoints match: a guess could charge a sandbox's price, or accept test money.
 */
function chooseRoute(
  table: RouteTable<RegisteredRoute>,
  { method, host, path }: AskedRoute,
): RegisteredRoute | undefined {
  const choose = (registered: readonly RegisteredRoute[]) =>
    registered.find((one) => one.method === method) ?? registered.find((one) => one.method === '*')
  if (host !== null && table.hasHost(host)) return table.find(path, choose, host)[0]
  const found = table.find(path, choose)
  const enabled = found.filter(({ isDisabled }) => !isDisabled)
  // A disabled endpoint doesn't count: its seller may have moved to another host. But if it costs real money, no endpoint in test money replaces it.
  const candidates = found.filter(
    (one) => !one.isDisabled || (!one.testnet && enabled.some(({ testnet }) => testnet)),
  )
  const [first = found[0], ...others] = candidates
  if (others.length === 0) return first
  const hosts = candidates.map(({ route }) => route.host).sort()
  throw new Refusal(
    'endpoint_ambiguous',
    `${method} ${path} is registered on ${hosts.join(', ')}, and this request names none of these hosts: ` +
      'set publicUrl or endpointId in the middleware. A Host header never selects an endpoint',
    {
      details: { candidates: candidates.map(({ endpointId, route }) => ({ endpointId, host: route.host })) },
    },
  )
}

type OfferRow = Omit<Offer, 'discovery'> & Interface & ServiceMetadata & { listed: boolean }

function toOffer(row: OfferRow, isListing: boolean): Offer {
  const { listed, inputSchema, outputSchema, inputExample, outputExample, ...rest } = row
  const { serviceName, tags, iconUrl, ...offer } = rest
  const described = { ...offer, inputSchema, outputSchema, inputExample, outputExample }
  const discovery = isListing && listed ? discoveryOf(described, { serviceName, tags, iconUrl }) : undefined
  return { ...offer, discovery: discovery ?? null }
}

/** Looks up a value, without caching that it is missing, because another process may register it at any moment. */
async function lookUp<V>(cache: ReturnType<typeof createCache<string, V | undefined>>, key: string) {
  const value = await cache.get(key)
  if (value === undefined) cache.delete(key)
  return value
}
