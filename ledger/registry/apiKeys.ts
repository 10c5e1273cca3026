import { hash, timingSafeEqual } from 'node:crypto'
import type { Database, Queryable } from '../store/database.ts'
import { changeRegistry } from './registryChanges.ts'

/** `tk_`, the key's public id, `_`, its secret: 256 random bits in base64url. */
const keyPattern = /^tk_([0-9a-f]{32})_([A-Za-z0-9_-]{43})$/

/** The public id of a presented API key; undefined for what has no key's form. */
export function keyIdOf(presented: string): string | undefined {
  const [, id] = keyPattern.exec(presented) ?? []
  return id && `key_${id}`
}

/** The provider that a presented API key belongs to; undefined for any key that is not in force. */
export async function findKeyOwner(sql: Queryable, presented: string): Promise<string | undefined> {
  const [, id, secret] = keyPattern.exec(presented) ?? []
  if (id === undefined || secret === undefined) return undefined
  const [row] = await sql<{ providerId: string; secretHash: Uint8Array }[]>`
    select provider_id as "providerId", secret_hash as "secretHash" from api_key
    where id = ${`key_${id}`} and revoked_at is null`
  return row && timingSafeEqual(row.secretHash, hashSecret(secret)) ? row.providerId : undefined
}

/** Whether the operator lets a provider settle anything through POST /submit, without a fee. */
export async function hasSubmitGrant(sql: Queryable, providerId: string): Promise<boolean> {
  const rows = await sql`select from provider where id = ${providerId} and submit_granted_at is not null`
  return rows.length > 0
}

/** Gives a provider that grant, or takes it back. @returns false where there is no such provider. */
export function setSubmitGrant(sql: Database, providerId: string, grantedAt: Date | null): Promise<boolean> {
  return setByOperator(sql, providerId, { submitGrantedAt: grantedAt })
}

/** Suspends a provider, or lets it sell again. @returns false where there is no such provider. */
export function setSuspended(sql: Database, providerId: string, suspendedAt: Date | null): Promise<boolean> {
  return setByOperator(sql, providerId, { suspendedAt })
}

async function setByOperator(
  sql: Database,
  providerId: string,
  change: { submitGrantedAt: Date | null } | { suspendedAt: Date | null },
): Promise<boolean> {
  const [[name, at]] = Object.entries(change) as [[string, Date | null]]
  const column = sql(name === 'suspendedAt' ? 'suspended_at' : 'submit_granted_at')
  const changed = await changeRegistry(sql, { providerId, by: null }, async (tx, record) => {
    const [before] = await tx<
      { at: Date | null }[]
    >`select ${column} as at from provider where id = ${providerId}`
    await tx`update provider set ${column} = ${at} where id = ${providerId}`
    await record(providerId, before ? { [name]: before.at } : null, change)
    return true
  })
  return changed ?? false
}

/** A random 256-bit secret needs no slow hash: there is nothing to guess. */
export function hashSecret(secret: string): Buffer {
  return hash('sha256', secret, 'buffer')
}

/** Which of these addresses are registered as somebody's wallet on a chain. */
export async function findRegisteredPayees(
  sql: Queryable,
  chainId: number,
  addresses: readonly string[],
): Promise<Set<string>> {
  const rows = await sql<{ address: string }[]>`
    select distinct address from wallet where chain_id = ${chainId} and address in ${sql(addresses)}`
  return new Set(rows.map((row) => row.address))
}
