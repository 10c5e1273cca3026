import { createCache } from '@tollkeeper/runtime/cache'
import type { Database } from '../store/database.ts'
import { shortExtension } from './bazaar.ts'
import { type Listing, type ListingDocument, readDocuments } from './listings.ts'

export type ListedWithDocument = Listing & ListingDocument

/** Maximum bytes of documents in an answer. Further items have shortened documents. */
const maxAnswerBytes = 262_144
/** Maximum number of cached documents, and maximum of their total bytes. */
const maxCached = 10_000
const maxCachedBytes = 16_777_216

type Stored = { document: ListingDocument; bytes: number }

/** Creates the function that adds a document to each listing of an answer, in order. Documents are complete as long as they fit, then shortened. */
export function createDocuments(
  sql: Database,
  now: () => number,
): (listings: readonly Listing[]) => Promise<ListedWithDocument[]> {
  const documents = createCache<string, Stored>({
    // Each version has a different key, so entries never become stale.
    ttlMs: Number.POSITIVE_INFINITY,
    max: maxCached,
    maxSize: maxCachedBytes,
    sizeOf: ({ bytes }) => bytes,
    now,
    load: () => Promise.reject(new Error('documents must be read together for the whole page')),
  })

  return async (listings) => {
    const found = new Map<string, Stored>()
    for (const listing of listings) {
      const version = versionOf(listing)
      if (documents.has(version)) found.set(listing.id, await documents.get(version))
    }
    const missing = listings.filter(({ id }) => !found.has(id))
    if (missing.length > 0) {
      const known = [...found.values()].reduce((sum, { bytes }) => sum + bytes, 0)
      const ids = missing.map(({ id }) => id)
      const read = await readDocuments(sql, ids, Math.max(0, maxAnswerBytes - known))
      for (const listing of missing) {
        const { isWhole = false, ...document } = read.get(listing.id) ?? withoutDocument
        // Count only `bazaar`: `described` refers to the same objects, so it uses no extra memory.
        const stored = { document, bytes: Buffer.byteLength(JSON.stringify(document.bazaar)) }
        found.set(listing.id, stored)
        if (isWhole) await documents.get(versionOf(listing), async () => stored)
      }
    }
    let left = maxAnswerBytes
    return listings.map((listing) => {
      const { document, bytes } = found.get(listing.id) ?? { document: withoutDocument, bytes: 0 }
      left -= bytes
      return { ...listing, ...(left >= 0 ? document : shortened(document)) }
    })
  }
}

/** Returns a key for the current version of a document. */
function versionOf({ id, updatedAt }: Listing): string {
  return `${id} ${updatedAt.getTime()}`
}

/** The document of a listing that was deleted after the list was read. */
const withoutDocument: ListingDocument & { isWhole?: boolean } = {
  described: null,
  bazaar: { info: { input: { type: 'http' } }, schema: { type: 'object' } },
}

function shortened({ described, bazaar }: ListingDocument): ListingDocument {
  const bare = { inputSchema: null, outputSchema: null, inputExample: null, outputExample: null }
  return { described: described && { ...described, ...bare }, bazaar: shortExtension(bazaar) }
}
