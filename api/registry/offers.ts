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
  /** Where it may be paid, one wallet a network; the first is the default. All of them are test networks, or none. */
  payees: { chainId: number; payTo: Address }[]
  requiresKey: boolean
}

export type Offers = {
  ofEndpoint(endpointId: string): Promise<Offer | undefined>
  /** The endpoint registered for a method and path; one for the very method goes before one for `*`. */
  ofRoute(providerId: string, method: string, path: string): Promise<Offer | undefined>
}

export type OffersOptions = {
  database: Database
  /** For how long what is registered may be served after it changed. */
  ttlMs: number
  now: () => number
}

const maxEntries = 50_000

/** Looks up what is registered, with a short memory: a challenge costs no query as a rule. */
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
    ofEndpoint: async (endpointId) => present(endpoints, endpointId),
    ofRoute: async (providerId, method, path) => present(routes, JSON.stringify([providerId, method, path])),
  }
}

/** What is missing is not remembered: it may be registered the next moment, through another process. */
async function present<V>(cache: ReturnType<typeof createCache<string, V | undefined>>, key: string) {
  const value = await cache.get(key)
  if (value === undefined) cache.delete(key)
  return value
}
