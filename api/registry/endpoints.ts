import type { Queryable } from '#ledger/database'
import { newId } from '../identifiers.ts'

/** The methods that an endpoint can be registered for; `*` stands for all of them. */
export const methods = ['GET', 'POST', 'PUT', 'PATCH', 'DELETE', '*'] as const
export type Method = (typeof methods)[number]

export type EndpointWallet = { walletId: string; chainId: number }

export type Endpoint = {
  endpointId: string
  providerId: string
  /** The wallets that it is paid to, one for each network; the first is the default. All are on test networks, or none. */
  wallets: EndpointWallet[]
  method: Method
  url: string
  path: string
  /** USDC base units. */
  price: bigint
  description: string
  mimeType: string
  createdAt: Date
}

const columns = (sql: Queryable, further = sql`endpoint_wallet`) => sql`
  e.id as "endpointId", e.provider_id as "providerId", e.method, e.url, e.path, e.price, e.description,
  e.mime_type as "mimeType", e.created_at as "createdAt",
  jsonb_build_array(jsonb_build_object('walletId', e.wallet_id, 'chainId', e.chain_id)) || coalesce(
    (select jsonb_agg(jsonb_build_object('walletId', x.wallet_id, 'chainId', x.chain_id) order by x.chain_id)
      from ${further} x where x.endpoint_id = e.id),
    '[]') as wallets`

/** @returns undefined if the provider has an endpoint for this method and path already. */
export async function insertEndpoint(
  sql: Queryable,
  endpoint: Omit<Endpoint, 'endpointId' | 'createdAt'>,
): Promise<Endpoint | undefined> {
  const [first, ...others] = endpoint.wallets
  if (first === undefined) throw new TypeError('An endpoint needs a wallet')
  const [row] = await sql<Endpoint[]>`
    with e as (
      insert into endpoint (id, provider_id, wallet_id, chain_id, method, url, path, price, description, mime_type)
      values (${newId('ep')}, ${endpoint.providerId}, ${first.walletId}, ${first.chainId}, ${endpoint.method},
        ${endpoint.url}, ${endpoint.path}, ${endpoint.price}, ${endpoint.description}, ${endpoint.mimeType})
      on conflict (provider_id, method, path) where disabled_at is null do nothing
      returning *
    ), further as (
      insert into endpoint_wallet (endpoint_id, wallet_id, chain_id)
      select e.id, given.wallet_id, given.chain_id from e
      cross join unnest(${others.map(({ walletId }) => walletId)}::text[], ${others.map(({ chainId }) => chainId)}::int[])
        as given (wallet_id, chain_id)
      returning *
    )
    select ${columns(sql, sql`further`)} from e`
  return row
}

export async function findEndpoint(
  sql: Queryable,
  providerId: string,
  endpointId: string,
): Promise<Endpoint | undefined> {
  const [row] = await sql<Endpoint[]>`
    select ${columns(sql)} from endpoint e
    where e.id = ${endpointId} and e.provider_id = ${providerId} and e.disabled_at is null`
  return row
}

export async function listEndpoints(sql: Queryable, providerId: string): Promise<Endpoint[]> {
  return sql<Endpoint[]>`
    select ${columns(sql)} from endpoint e
    where e.provider_id = ${providerId} and e.disabled_at is null
    order by e.created_at, e.id limit 1000`
}
