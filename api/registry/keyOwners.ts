import { hash } from 'node:crypto'
import { createCache } from '#process/cache'

/** Who presents an API key. */
export type KeyOwners = {
  /**
   * @param beforeQuery called before the database is asked; may throw.
   * @returns the provider's id, undefined for a key that is not in force.
   */
  ownerOf(apiKey: string, beforeQuery: () => void): Promise<string | undefined>
}

/**
 * Remembers for a short time whose a key is, by the key's hash: a memory dump shows none.
 *
 * A revoked key may be accepted for `ttlMs` longer.
 */
export function createKeyOwners(
  find: (apiKey: string) => Promise<string | undefined>,
  ttlMs: number,
  now: () => number,
): KeyOwners {
  const keys = new Map<string, string>()
  const owners = createCache<string, string | undefined>({
    load: async (digest) => find(keys.get(digest) as string),
    ttlMs,
    max: 10_000,
    now,
  })
  return {
    async ownerOf(apiKey, beforeQuery) {
      const digest = hash('sha256', apiKey, 'base64url')
      if (!owners.has(digest)) beforeQuery()
      // Only while the look-up is under way does the key itself stand here.
      keys.set(digest, apiKey)
      try {
        return await owners.get(digest)
      } finally {
        keys.delete(digest)
      }
    },
  }
}
