import type { Queryable } from '#ledger/store/database'

export type ListedProvider = {
  providerId: string
  name: string
  contact: string | null
  createdAt: Date
  /** By itself, and by the operator. */
  disabledAt: Date | null
  suspendedAt: Date | null
  endpoints: number
  wallets: number
  keys: number
}

export type ProviderPosition = { createdAt: Date; id: string }

/** All providers, the newest first, with how much of each is in use. */
export async function listProviders(
  sql: Queryable,
  { after, limit }: { after: ProviderPosition | null; limit: number },
): Promise<ListedProvider[]> {
  return sql<ListedProvider[]>`
    select id as "providerId", name, contact, created_at as "createdAt", disabled_at as "disabledAt",
      suspended_at as "suspendedAt",
      (select count(*)::int from endpoint e where e.provider_id = p.id and e.disabled_at is null) as endpoints,
      (select count(*)::int from wallet w where w.provider_id = p.id and w.retired_at is null) as wallets,
      (select count(*)::int from api_key k where k.provider_id = p.id and k.revoked_at is null) as keys
    from provider p
    ${after === null ? sql`` : sql`where (created_at, id) < (${after.createdAt}, ${after.id})`}
    order by created_at desc, id desc limit ${limit}`
}
