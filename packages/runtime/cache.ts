/**
 * Loads the value of a key.
 *
 * @param isBehind whether the load is in the background. No caller waits for a background load, so it may take longer, for example to be
 *   combined with other loads.
 */
type Load<K, V> = (key: K, isBehind: boolean) => Promise<V>

/** A bounded map of loaded values, with one load per key at a time. */
export type Cache<K, V> = {
  /**
   * Returns the cached value, or the result of `load`. A value that is due for renewal is returned and renewed in the
   * background.
   *
   * @param load a cheaper way to load than the cache's own, if the caller has one.
   */
  get(key: K, load?: Load<K, V>): V | Promise<V>
  /** Loads the value again, unless the cached value is younger than `minAgeMs`. */
  refresh(key: K, minAgeMs?: number, load?: Load<K, V>): V | Promise<V>
  delete(key: K): void
  /** Whether `get` would return a cached value without waiting for a load. */
  has(key: K): boolean
}

export type CacheOptions<K, V> = {
  load: Load<K, V>
  /** Time in ms for which a value is served. */
  ttlMs: number
  /**
   * Time in ms after which a value is renewed in the background. It is still served in the meantime. Default: no renewal before
   * `ttlMs`.
   */
  refreshAfterMs?: number
  /**
   * Maximum random shift of each renewal in ms, so that values loaded together aren't renewed together. Default: 0.
   */
  refreshJitterMs?: number
  /** Maximum number of concurrent renewals; a later `get` renews the other values. Default: unlimited. */
  maxRefreshes?: number
  /** Maximum number of entries; the oldest are removed first. */
  max: number
  /**
   * Maximum sum of the values' sizes, by `sizeOf`. The oldest entries are removed first. A value that exceeds this limit by
   * itself isn't cached.
   */
  maxSize?: number
  sizeOf?: (value: V) => number
  now: () => number
  /** A number from 0 to below 1, uniformly distributed. Default: `Math.random`. */
  random?: () => number
}

type Entry<V> = { value: V; size: number; loadedAt: number; refreshAt: number }
type Loading<V> = { promise: Promise<V>; isBehind: boolean }

export function createCache<K, V>({
  load: loadByDefault,
  ttlMs,
  refreshAfterMs = ttlMs,
  refreshJitterMs = 0,
  maxRefreshes = Number.POSITIVE_INFINITY,
  max,
  maxSize = Number.POSITIVE_INFINITY,
  sizeOf = () => 0,
  now,
  random = Math.random,
}: CacheOptions<K, V>): Cache<K, V> {
  const entries = new Map<K, Entry<V>>()
  const loading = new Map<K, Loading<V>>()
  let refreshes = 0
  let size = 0

  function remove(key: K): void {
    size -= entries.get(key)?.size ?? 0
    entries.delete(key)
  }

  function add(key: K, entry: Entry<V>): void {
    remove(key)
    if (entry.size > maxSize) return
    entries.set(key, entry)
    size += entry.size
    for (const oldest of entries.keys()) {
      if (entries.size <= max && size <= maxSize) break
      remove(oldest)
    }
  }

  /** Starts a load, or joins a load in progress. A caller that waits doesn't join a background load, because that load may take longer. */
  function start(key: K, load: Load<K, V>, isBehind = false): Promise<V> {
    const under = loading.get(key)
    if (under !== undefined && (isBehind || !under.isBehind)) return under.promise
    // Count a value's age from the start of its load, because the loaded value may already be that old.
    const loadedAt = now()
    const promise = load(key, isBehind)
      .then((value) => {
        // If the key was deleted or loaded again in the meantime, this value is returned to its callers, but not cached.
        if (loading.get(key)?.promise === promise) {
          const refreshAt = loadedAt + refreshAfterMs + (2 * random() - 1) * refreshJitterMs
          add(key, { value, size: sizeOf(value), loadedAt, refreshAt })
        }
        return value
      })
      .finally(() => {
        if (loading.get(key)?.promise === promise) loading.delete(key)
      })
    loading.set(key, { promise, isBehind })
    return promise
  }

  function startRefresh(key: K, load: Load<K, V>): void {
    if (refreshes >= maxRefreshes || loading.has(key)) return
    refreshes += 1
    start(key, load, true)
      // No caller waits for a renewal, so its failure matters only after the value has expired.
      .catch(() => {})
      .finally(() => {
        refreshes -= 1
      })
  }

  return {
    get(key, load = loadByDefault) {
      const entry = entries.get(key)
      const at = now()
      if (entry === undefined || at - entry.loadedAt >= ttlMs) return start(key, load)
      if (at >= entry.refreshAt) startRefresh(key, load)
      return entry.value
    },
    refresh(key, minAgeMs = 0, load = loadByDefault) {
      const entry = entries.get(key)
      if (entry !== undefined && now() - entry.loadedAt < minAgeMs) return entry.value
      return start(key, load)
    },
    has(key) {
      const entry = entries.get(key)
      return entry !== undefined && now() - entry.loadedAt < ttlMs
    },
    delete(key) {
      remove(key)
      loading.delete(key)
    },
  }
}
