import type { Queryable } from '#ledger/database'
import { newId } from '../identifiers.ts'

/** What an endpoint can be registered for; `*` stands for all of them. */
export const methods = ['GET', 'POST', 'PUT', 'PATCH', 'DELETE', '*'] as const
export type Method = (typeof methods)[number]

export type Endpoint = {
  endpointId: string
  providerId: string
  walletId: string
  /** Of its wallet. */
  chainId: number
  method: Method
  url: string
  path: string
  /** USDC base units. */
  price: bigint
  description: string
  mimeType: string
  createdAt: Date
}

const columns = (sql: Queryable) => sql`
  e.id as "endpointId", e.provider_id as "providerId", e.wallet_id as "walletId", w.chain_id as "chainId", e.method,
  e.url, e.path, e.price, e.description, e.mime_type as "mimeType", e.created_at as "createdAt"`

/** @returns undefined if the provider has an endpoint for this method and path already. */
export async function insertEndpoint(
  sql: Queryable,
  endpoint: Omit<Endpoint, 'endpointId' | 'chainId' | 'createdAt'>,
): Promise<Endpoint | undefined> {
  const [row] = await sql<Endpoint[]>`
    with e as (
      insert into endpoint (id, provider_id, wallet_id, method, url, path, price, description, mime_type)
      values (${newId('ep')}, ${endpoint.providerId}, ${endpoint.walletId}, ${endpoint.method}, ${endpoint.url},
        ${endpoint.path}, ${endpoint.price}, ${endpoint.description}, ${endpoint.mimeType})
      on conflict (provider_id, method, path) where disabled_at is null do nothing
      returning *
    )
    select ${columns(sql)} from e join wallet w on w.id = e.wallet_id`
  return row
}

export async function findEndpoint(
  sql: Queryable,
  providerId: string,
  endpointId: string,
): Promise<Endpoint | undefined> {
  const [row] = await sql<Endpoint[]>`
    select ${columns(sql)} from endpoint e join wallet w on w.id = e.wallet_id
    where e.id = ${endpointId} and e.provider_id = ${providerId} and e.disabled_at is null`
  return row
}

export async function listEndpoints(sql: Queryable, providerId: string): Promise<Endpoint[]> {
  return sql<Endpoint[]>`
    select ${columns(sql)} from endpoint e join wallet w on w.id = e.wallet_id
    where e.provider_id = ${providerId} and e.disabled_at is null
    order by e.created_at, e.id limit 1000`
}
