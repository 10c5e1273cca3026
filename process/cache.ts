/** @param isBehind nobody waits for it: it may take its time, as to gather with others. */
type Load<K, V> = (key: K, isBehind: boolean) => Promise<V>

/** A bounded map of loaded values with one load at a time a key. */
export type Cache<K, V> = {
  /**
   * The cached value, or the one that `load` gives. A value that is due for renewal is served and renewed behind.
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
  /**
   * A value's renewal is due earlier or later by up to this, each at random: what was loaded together is not renewed
   * together. Default: 0.
   */
  refreshJitterMs?: number
  /** How many values are renewed at a time; a later `get` renews the others. Default: any number. */
  maxRefreshes?: number
  /** Entries at most; the oldest give way. */
  max: number
  now: () => number
  /** From 0 to below 1, evenly. Default: `Math.random`. */
  random?: () => number
}

type Entry<V> = { value: V; loadedAt: number; refreshAt: number }
type Loading<V> = { promise: Promise<V>; isBehind: boolean }

export function createCache<K, V>({
  load: loadByDefault,
  ttlMs,
  refreshAfterMs = ttlMs,
  refreshJitterMs = 0,
  maxRefreshes = Number.POSITIVE_INFINITY,
  max,
  now,
  random = Math.random,
}: CacheOptions<K, V>): Cache<K, V> {
  const entries = new Map<K, Entry<V>>()
  const loading = new Map<K, Loading<V>>()
  let refreshes = 0

  /** Loads, or joins the load that is under way; but who waits joins none that is behind. */
  function start(key: K, load: Load<K, V>, isBehind = false): Promise<V> {
    const under = loading.get(key)
    if (under !== undefined && (isBehind || !under.isBehind)) return under.promise
    // The moment before the load counts: a value is never younger than what it shows.
    const loadedAt = now()
    const promise = load(key, isBehind)
      .then((value) => {
        // Deleted or loaded anew meanwhile: whoever asked gets it, nobody later does.
        if (loading.get(key)?.promise === promise) {
          const refreshAt = loadedAt + refreshAfterMs + (2 * random() - 1) * refreshJitterMs
          entries.delete(key)
          entries.set(key, { value, loadedAt, refreshAt })
          if (entries.size > max) entries.delete(entries.keys().next().value as K)
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
      // A failed renewal shows itself once the value has run out.
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
      entries.delete(key)
      loading.delete(key)
    },
  }
}
