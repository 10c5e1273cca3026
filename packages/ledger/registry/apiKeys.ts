import { hash, timingSafeEqual } from 'node:crypto'
import { formatUsdc } from '@tollkeeper/sdk/protocol/amount'
import { BaseError } from '@tollkeeper/sdk/protocol/errors'
import type { Database, Queryable } from '../store/database.ts'
import { changeRegistry } from './registryChanges.ts'

/** `tk_`, the key's public id, `_`, its secret: 256 random bits in base64url. */
const keyPattern = /^tk_([0-9a-f]{32})_([A-Za-z0-9_-]{43})$/

/** Returns the public id of a presented API key; undefined if it doesn't have a key's format. */
export function keyIdOf(presented: string): string | undefined {
  const [, id] = keyPattern.exec(presented) ?? []
  return id && `key_${id}`
}

/** Scopes of an API key. `full`: everything that its provider may do. */
export const keyScopes = ['full', 'read'] as const
export type KeyScope = (typeof keyScopes)[number]

export type KeyOwner = { providerId: string; scope: KeyScope }

/** Finds the owner and scope of a presented API key; undefined if the key is unknown or revoked. */
export async function findKey(sql: Queryable, presented: string): Promise<KeyOwner | undefined> {
  const [, id, secret] = keyPattern.exec(presented) ?? []
  if (id === undefined || secret === undefined) return undefined
  const [row] = await sql<(KeyOwner & { secretHash: Uint8Array })[]>`
    select provider_id as "providerId", scope, secret_hash as "secretHash" from api_key
    where id = ${`key_${id}`} and revoked_at is null`
  if (row === undefined || !timingSafeEqual(row.secretHash, hashSecret(secret))) return undefined
  return { providerId: row.providerId, scope: row.scope }
}

/**
 * Finds the provider that a presented API key acts for; undefined if the key is unknown or revoked.
 *
 * @throws {BaseError} `forbidden` for a read-only key
 */
export async function findKeyOwner(sql: Queryable, presented: string): Promise<string | undefined> {
  const key = await findKey(sql, presented)
  if (key?.scope === 'read') throw readOnlyKey()
  return key?.providerId
}

export function readOnlyKey(): BaseError {
  return new BaseError('forbidden', 'This API key may only read')
}

/**
 * Sets the maximum that the operator pays per UTC day for a provider's gas that no fee covers, in USDC base units.
 *
 * @returns false if there is no such provider.
 */
export async function setGasGrant(sql: Database, providerId: string, gasGrant: bigint): Promise<boolean> {
  const changed = await changeRegistry(sql, { providerId, by: null }, async (tx, record) => {
    const [before] = await tx<{ gasGrant: bigint }[]>`
      update provider p set gas_grant = ${gasGrant} from provider before
      where p.id = ${providerId} and before.id = p.id returning before.gas_grant as "gasGrant"`
    await record(providerId, before ? { gasGrant: formatUsdc(before.gasGrant) } : null, {
      gasGrant: formatUsdc(gasGrant),
    })
    return true
  })
  return changed ?? false
}

/** Hashes a key's secret. A random 256-bit secret needs no slow hash, because it can't be guessed. */
export function hashSecret(secret: string): Buffer {
  return hash('sha256', secret, 'buffer')
}
