type Load<K, V> = (key: K) => Promise<V>

/** A bounded map of loaded values with one load at a time a key. */
export type Cache<K, V> = {
  /**
   * The cached value, or the one that `load` gives. A value past `refreshAfterMs` is served and renewed behind.
   *
   * @param load where the caller knows a cheaper way than the cache's own.
   */
  get(key: K, load?: Load<K, V>): V | Promise<V>
  /** Loads anew, unless what is cached is younger than `minAgeMs`. */
  refresh(key: K, minAgeMs?: number, load?: Load<K, V>): V | Promise<V>
  delete(key: K): void
  /** Whether `get` would answer without loading. */
  has(key: K): boolean
}

export type CacheOptions<K, V> = {
  load: Load<K, V>
  /** Milliseconds after which a value is no longer served. */
  ttlMs: number
  /** Milliseconds after which a value is renewed while it's still served; default: never before `ttlMs`. */
  refreshAfterMs?: number
  /** Entries at most; the oldest give way. */
  max: number
  now: () => number
}

type Entry<V> = { value: V; loadedAt: number }

export function createCache<K, V>({
  load: loadByDefault,
  ttlMs,
  refreshAfterMs = ttlMs,
  max,
  now,
}: CacheOptions<K, V>): Cache<K, V> {
  const entries = new Map<K, Entry<V>>()
  const loading = new Map<K, Promise<V>>()

  function start(key: K, load: Load<K, V>): Promise<V> {
    const under = loading.get(key)
    if (under !== undefined) return under
    // The moment before the load counts: a value is never younger than what it shows.
    const loadedAt = now()
    const promise = load(key)
      .then((value) => {
        // Deleted meanwhile: whoever asked gets it, nobody later does.
        if (loading.get(key) === promise) {
          entries.delete(key)
          entries.set(key, { value, loadedAt })
          if (entries.size > max) entries.delete(entries.keys().next().value as K)
        }
        return value
      })
      .finally(() => {
        if (loading.get(key) === promise) loading.delete(key)
      })
    loading.set(key, promise)
    return promise
  }

  return {
    get(key, load = loadByDefault) {
      const entry = entries.get(key)
      if (entry === undefined) return start(key, load)
      const age = now() - entry.loadedAt
      if (age >= ttlMs) return start(key, load)
      // A failed renewal shows itself once the value has run out.
      if (age >= refreshAfterMs && !loading.has(key)) start(key, load).catch(() => {})
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
      entries.delete(key)
      loading.delete(key)
    },
  }
}
