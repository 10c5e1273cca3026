import type { Queryable } from '@tollkeeper/ledger/store/database'
import { newId } from '@tollkeeper/ledger/store/identifiers'
import type { Address, Hex } from 'viem'

export type Provider = {
  providerId: string
  name: string
  contact: string | null
  /** When the owner confirmed the contact; null: not yet, so no mail is sent to it. */
  contactConfirmedAt: Date | null
  /** Whether `/verify` for its endpoints requires its API key. */
  requiresKey: boolean
  /** Whether it verifies with its own middleware instead of ours. */
  ownMiddleware: boolean
  /** Whether the catalog lists its endpoints. */
  listed: boolean
  /** Name in catalogs, by x402's rules. */
  serviceName: string | null
  tags: string[]
  iconUrl: string | null
  ownershipProofs: OwnershipProof[]
  version: number
  createdAt: Date
  disabledAt: Date | null
}

/** A wallet's signature (EIP-191) over an origin where it sells. Catalogs compare the wallet with the payee there. */
export type OwnershipProof = { origin: string; address: Address; signature: Hex }

export type NewProvider = Pick<Provider, 'name' | 'contact' | 'requiresKey' | 'ownMiddleware'>

const columns = (sql: Queryable) =>
  sql`id as "providerId", name, contact, requires_key as "requiresKey", own_middleware as "ownMiddleware", listed, service_name as "serviceName", tags,
    icon_url as "iconUrl", ownership_proofs as "ownershipProofs", version, created_at as "createdAt",
    disabled_at as "disabledAt",
    (select c.confirmed_at from confirmed_contact c where c.provider_id = provider.id and c.address = provider.contact)
      as "contactConfirmedAt"`

export async function insertProvider(
  sql: Queryable,
  { name, contact, requiresKey, ownMiddleware }: NewProvider,
): Promise<Provider> {
  const [row] = await sql<[Provider]>`
    insert into provider (id, name, contact, requires_key, own_middleware)
    values (${newId('prov')}, ${name}, ${contact}, ${requiresKey}, ${ownMiddleware})
    returning ${columns(sql)}`
  return row
}

export async function findProvider(sql: Queryable, providerId: string): Promise<Provider | undefined> {
  const [row] = await sql<Provider[]>`select ${columns(sql)} from provider where id = ${providerId}`
  return row
}

export async function updateProvider(
  sql: Queryable,
  { providerId, ...provider }: Omit<Provider, 'version' | 'createdAt' | 'contactConfirmedAt'>,
): Promise<Provider> {
  const { name, contact, requiresKey, ownMiddleware, listed, serviceName, tags, iconUrl } = provider
  const { ownershipProofs, disabledAt } = provider
  const [row] = await sql<[Provider]>`
    update provider set name = ${name}, contact = ${contact}, requires_key = ${requiresKey}, own_middleware = ${ownMiddleware},
      listed = ${listed}, service_name = ${serviceName}, tags = ${tags}::text[], icon_url = ${iconUrl},
      ownership_proofs = ${sql.json(ownershipProofs)}, disabled_at = ${disabledAt}, version = version + 1
    where id = ${providerId}
    returning ${columns(sql)}`
  return row
}

/** Converts `disabled: true` or `false` in a change to the new `disabledAt`; undefined leaves it unchanged. */
export function disabledSince(
  { disabledAt }: { disabledAt: Date | null },
  disabled: boolean | undefined,
  now: number,
): Date | null {
  if (disabled === undefined) return disabledAt
  return disabled ? (disabledAt ?? new Date(now)) : null
}
