import { hash, randomBytes, timingSafeEqual } from 'node:crypto'
import type { Queryable } from '#keeper/store/database'
import { newId } from '../identifiers.ts'

/** An API key without its secret, which is shown once and never again. */
export type ApiKey = {
  keyId: string
  label: string
  createdAt: Date
  revokedAt: Date | null
}

export type IssuedApiKey = { keyId: string; label: string; createdAt: Date; apiKey: string }

/** `tk_`, the key's public id, `_`, its secret: 256 random bits in base64url. */
const keyPattern = /^tk_([0-9a-f]{32})_([A-Za-z0-9_-]{43})$/

export async function issueApiKey(sql: Queryable, providerId: string, label = ''): Promise<IssuedApiKey> {
  const keyId = newId('key')
  const secret = randomBytes(32).toString('base64url')
  const [row] = await sql<[Omit<IssuedApiKey, 'apiKey'>]>`
    insert into api_key (id, provider_id, secret_hash, label)
    values (${keyId}, ${providerId}, ${hashSecret(secret)}, ${label})
    returning id as "keyId", label, created_at as "createdAt"`
  return { ...row, apiKey: `tk_${keyId.slice(4)}_${secret}` }
}

/** The provider that a presented key belongs to; undefined for any key that is not in force. */
export async function findKeyOwner(sql: Queryable, presented: string): Promise<string | undefined> {
  const match = keyPattern.exec(presented)
  if (match === null) return undefined
  const [, id, secret] = match as unknown as [string, string, string]
  const [row] = await sql<{ providerId: string; secretHash: Buffer }[]>`
    select provider_id as "providerId", secret_hash as "secretHash"
    from api_key
    where id = ${`key_${id}`} and revoked_at is null`
  if (row === undefined) return undefined
  return timingSafeEqual(row.secretHash, hashSecret(secret)) ? row.providerId : undefined
}

export async function listApiKeys(sql: Queryable, providerId: string): Promise<ApiKey[]> {
  return sql<ApiKey[]>`
    select id as "keyId", label, created_at as "createdAt", revoked_at as "revokedAt"
    from api_key where provider_id = ${providerId}
    order by created_at, id`
}

/** @returns false if the provider has no such key. */
export async function revokeApiKey(sql: Queryable, providerId: string, keyId: string): Promise<boolean> {
  const rows = await sql`
    update api_key set revoked_at = coalesce(revoked_at, now())
    where id = ${keyId} and provider_id = ${providerId}
    returning id`
  return rows.length === 1
}

/** A random 256-bit secret needs no slow hash: there is nothing to guess. */
function hashSecret(secret: string): Buffer {
  return hash('sha256', secret, 'buffer')
}
