/** @param isBehind nobody waits, so the load may take its time, for example to gather with others. */
type Load<K, V> = (key: K, isBehind: boolean) => Promise<V>

/** A bounded map of loaded values with one load at a time a key. */
export type Cache<K, V> = {
  /**
   * The cached value, or the one that `load` gives. A value that is due for renewal is served and renewed in the background.
   *
   * @param load a cheaper way than the cache's own, if the caller knows one.
   */
  get(key: K, load?: Load<K, V>): V | Promise<V>
  /** Loads anew, unless the cached value is younger than `minAgeMs`. */
  refresh(key: K, minAgeMs?: number, load?: Load<K, V>): V | Promise<V>
  delete(key: K): void
  /** Whether `get` would answer without loading. */
  has(key: K): boolean
}

export type CacheOptions<K, V> = {
  load: Load<K, V>
  /** How many milliseconds a value is served. */
  ttlMs: number
  /** After how many milliseconds a value is renewed while it's still served; default: never before `ttlMs`. */
  refreshAfterMs?: number
  /**
   * Moves each renewal at random by up to this much, so that values loaded together aren't renewed together.
   * Default: 0.
   */
  refreshJitterMs?: number
  /** Most renewals at a time; a later `get` renews the other values. Default: any number. */
  maxRefreshes?: number
  /** Most entries; the oldest give way. */
  max: number
  /** Maximum sum of the values' sizes, by `sizeOf`; the oldest entries give way, a value that alone is larger isn't cached. */
  maxSize?: number
  sizeOf?: (value: V) => number
  now: () => number
  /** From 0 to below 1, evenly spread. Default: `Math.random`. */
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

  /** Loads, or joins a load under way; a caller who waits joins none in the background. */
  function start(key: K, load: Load<K, V>, isBehind = false): Promise<V> {
    const under = loading.get(key)
    if (under !== undefined && (isBehind || !under.isBehind)) return under.promise
    // The time before the load counts, so that a value is never older than its age says.
    const loadedAt = now()
    const promise = load(key, isBehind)
      .then((value) => {
        // If it was deleted or loaded anew meanwhile, those who asked get it, but it isn't cached.
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
      // A failed renewal shows once the value has run out.
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
