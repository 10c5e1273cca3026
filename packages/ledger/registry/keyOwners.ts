import { hash } from 'node:crypto'
import { createCache } from '@tollkeeper/runtime/cache'

/** Finds the owner of an API key. */
export type KeyOwners<Owner> = {
  /**
   * @param beforeQuery called once before the database is queried; may throw.
   * @returns undefined for an unknown or revoked key.
   */
  ownerOf(apiKey: string, beforeQuery: () => void): Promise<Owner | undefined>
}

/**
 * Caches the owner of each key for a short time. The cache is keyed by the key's hash, so that a memory dump shows no keys.
 *
 * A revoked key may be accepted for `ttlMs` longer.
 */
export function createKeyOwners<Owner>(
  find: (apiKey: string) => Promise<Owner | undefined>,
  ttlMs: number,
  now: () => number,
): KeyOwners<Owner> {
  const keys = new Map<string, string>()
  const owners = createCache<string, Owner | undefined>({
    load: async (digest) => find(keys.get(digest) as string),
    ttlMs,
    max: 10_000,
    now,
  })
  return {
    async ownerOf(apiKey, beforeQuery) {
      const digest = hash('sha256', apiKey, 'base64url')
      // Requests that arrive while their key is looked up share that query.
      if (!owners.has(digest) && !keys.has(digest)) beforeQuery()
      // The key itself is kept only while it is looked up.
      keys.set(digest, apiKey)
      try {
        return await owners.get(digest)
      } finally {
        keys.delete(digest)
      }
    },
  }
}
