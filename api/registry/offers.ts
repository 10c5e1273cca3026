import type { Address } from 'viem'
import type { Database } from '#ledger/database'
import { createCache } from '#process/cache'
import type { Method } from './endpoints.ts'

/** What a challenge is made from: an endpoint, who is paid for it, and what its provider asks of callers. */
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
}

export type Offers = {
  ofEndpoint(endpointId: string): Promise<Offer | undefined>
  /** The endpoint registered for a method and path. One for the method itself takes precedence over one for `*`. */
  ofRoute(providerId: string, method: string, path: string): Promise<Offer | undefined>
}

export type OffersOptions = {
  database: Database
  /** How long an offer may be served after its registration has changed. */
  ttlMs: number
  now: () => number
}

const maxEntries = 50_000

/** Looks up offers through a short-lived cache, so that most challenges cost no query. */
export function createOffers({ database, ttlMs, now }: OffersOptions): Offers {
  const select = database`
    select e.id as "endpointId", e.provider_id as "providerId", e.method, e.url, e.price, e.description,
      e.mime_type as "mimeType", p.requires_key as "requiresKey",
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
    load: async (endpointId) => {
      const [row] = await database<Offer[]>`
        ${select} where e.id = ${endpointId} and e.disabled_at is null`
      return row
    },
  })

  const routes = createCache<string, Offer | undefined>({
    ...shared,
    load: async (key) => {
      const [providerId, method, path] = JSON.parse(key) as [string, string, string]
      const [row] = await database<Offer[]>`
        ${select}
        where e.provider_id = ${providerId} and e.path = ${path} and e.method in (${method}, '*')
          and e.disabled_at is null
        order by e.method = '*'
        limit 1`
      return row
    },
  })

  return {
    ofEndpoint: async (endpointId) => lookUp(endpoints, endpointId),
    ofRoute: async (providerId, method, path) => lookUp(routes, JSON.stringify([providerId, method, path])),
  }
}

/** Looks up an offer, and never caches that one is missing: another process may register it the next moment. */
async function lookUp<V>(cache: ReturnType<typeof createCache<string, V | undefined>>, key: string) {
  const value = await cache.get(key)
  if (value === undefined) cache.delete(key)
  return value
}
