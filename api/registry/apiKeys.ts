import { randomBytes } from 'node:crypto'
import { hashSecret, type KeyScope } from '@tollkeeper/ledger/registry/apiKeys'
import { type Changer, changeRegistry } from '@tollkeeper/ledger/registry/registryChanges'
import type { Database, Queryable } from '@tollkeeper/ledger/store/database'
import { newId } from '@tollkeeper/ledger/store/identifiers'

/** An API key without its secret, which is shown once. */
export type ApiKey = {
  keyId: string
  label: string
  scope: KeyScope
  createdAt: Date
  revokedAt: Date | null
}

export type IssuedApiKey = Omit<ApiKey, 'revokedAt'> & { apiKey: string }

export type NewApiKey = { label?: string | undefined; scope?: KeyScope | undefined }

/** Issues a key in the format that `findKey` of packages/ledger/registry/apiKeys.ts reads. */
export async function issueApiKey(
  sql: Queryable,
  providerId: string,
  { label = '', scope = 'full' }: NewApiKey = {},
): Promise<IssuedApiKey> {
  const keyId = newId('key')
  const secret = randomBytes(32).toString('base64url')
  const [row] = await sql<[Omit<IssuedApiKey, 'apiKey'>]>`
    insert into api_key (id, provider_id, secret_hash, label, scope)
    values (${keyId}, ${providerId}, ${hashSecret(secret)}, ${label}, ${scope})
    returning id as "keyId", label, scope, created_at as "createdAt"`
  return { ...row, apiKey: `tk_${keyId.slice(4)}_${secret}` }
}

/** @returns undefined if there is no such provider */
export async function issueRecordedApiKey(
  sql: Database,
  changer: Changer,
  asked?: NewApiKey,
): Promise<IssuedApiKey | undefined> {
  return changeRegistry(sql, changer, async (tx, record) => {
    const issued = await issueApiKey(tx, changer.providerId, asked)
    const { apiKey: _, ...key } = issued
    await record(key.keyId, null, key)
    return issued
  })
}

export async function listApiKeys(sql: Queryable, providerId: string): Promise<ApiKey[]> {
  return sql<ApiKey[]>`
    select id as "keyId", label, scope, created_at as "createdAt", revoked_at as "revokedAt"
    from api_key where provider_id = ${providerId}
    order by created_at, id`
}

export async function revokeApiKey(sql: Queryable, keyId: string): Promise<ApiKey> {
  const [row] = await sql<[ApiKey]>`
    update api_key set revoked_at = coalesce(revoked_at, now()) where id = ${keyId}
    returning id as "keyId", label, scope, created_at as "createdAt", revoked_at as "revokedAt"`
  return row
}
