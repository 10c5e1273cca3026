import { expect, test } from 'vitest'
import { type CacheOptions, createCache } from './cache.ts'

const ttlMs = 1_000

/** Creates a cache whose loads are completed by the test. Each value is the clock's time at the start of its load. */
function createByHand(options: Partial<CacheOptions<string, number>> = {}) {
  const clock = { ms: 0 }
  const asked: string[] = []
  const answers: (() => void)[] = []
  const cache = createCache<string, number>({
    load: (key) => {
      asked.push(key)
      const value = clock.ms
      return new Promise((resolve) => answers.push(() => resolve(value)))
    },
    ttlMs,
    refreshAfterMs: ttlMs / 2,
    max: 100,
    now: () => clock.ms,
    ...options,
  })
  /** Completes all loads in progress. */
  async function answer() {
    for (const one of answers.splice(0)) one()
    await new Promise((resolve) => setImmediate(resolve))
  }

  async function fill(keys: readonly string[]) {
    for (const key of keys) void cache.get(key)
    await answer()
    expect(asked.splice(0)).toEqual(keys)
  }

  /** The keys that were loaded since the last call. */
  return { cache, clock, asked: () => asked.splice(0), answer, fill }
}

const keys = ['a', 'b', 'c', 'd']

test('default: serves a value, renews it in the background when due, and loads it again after its expiry', async () => {
  const { cache, clock, asked, answer, fill } = createByHand()
  await fill(['a'])
  clock.ms = 499
  expect(cache.get('a')).toBe(0)
  expect(asked()).toEqual([])
  clock.ms = 500
  expect([cache.get('a'), cache.get('a')]).toEqual([0, 0])
  expect(asked()).toEqual(['a'])
  await answer()
  expect(cache.get('a')).toBe(500)
  clock.ms = 1_500
  const late = cache.get('a')
  expect(late).toBeInstanceOf(Promise)
  await answer()
  expect(await late).toBe(1_500)
})

test('behavior: renews values at different random times, even if they were loaded together', async () => {
  const draws = [0, 0.25, 0.5, 0.75]
  const { cache, clock, asked, fill } = createByHand({
    refreshJitterMs: 200,
    random: () => draws.shift() as number,
  })
  await fill(keys)
  const renewed = []
  for (clock.ms = 0; clock.ms < ttlMs; clock.ms += 50) {
    for (const key of keys) expect(cache.get(key)).toBe(0)
    renewed.push(...asked().map((key) => [key, clock.ms]))
  }
  expect(renewed).toEqual([
    ['a', 300],
    ['b', 400],
    ['c', 500],
    ['d', 600],
  ])
})

test('behavior: limits concurrent renewals, and returns cached values without waiting for them', async () => {
  const { cache, clock, asked, answer, fill } = createByHand({ maxRefreshes: 2 })
  const all = () => keys.map((key) => cache.get(key))
  await fill(keys)
  clock.ms = 600
  expect(all()).toEqual([0, 0, 0, 0])
  expect(asked()).toEqual(['a', 'b'])
  expect(all()).toEqual([0, 0, 0, 0])
  expect(asked()).toEqual([])
  await answer()
  expect(all()).toEqual([600, 600, 0, 0])
  expect(asked()).toEqual(['c', 'd'])
})

test('behavior: loads an expired value immediately, even if the maximum number of renewals is in progress', async () => {
  const { cache, clock, asked, answer, fill } = createByHand({ maxRefreshes: 1 })
  await fill(['a'])
  clock.ms = 300
  await fill(['b'])
  clock.ms = 1_000
  expect(cache.get('b')).toBe(300)
  const [late, other] = [cache.get('a'), cache.get('c')]
  expect(asked()).toEqual(['b', 'a', 'c'])
  await answer()
  expect([await late, await other]).toEqual([1_000, 1_000])
})

test('behavior: starts a separate load for a caller whose value expired during a background renewal', async () => {
  const renewal = Promise.withResolvers<number>()
  const { cache, clock, answer, fill } = createByHand()
  await fill(['a'])
  const asked: boolean[] = []
  const load = (_key: string, isBehind: boolean) => {
    asked.push(isBehind)
    return isBehind ? renewal.promise : Promise.resolve(clock.ms)
  }
  clock.ms = 900
  expect(cache.get('a', load)).toBe(0)
  clock.ms = 1_000
  expect(await Promise.all([cache.get('a', load), cache.get('a', load)])).toEqual([1_000, 1_000])
  expect(asked).toEqual([true, false])
  // The renewal ends after the second load, so its older value doesn't replace the newer one.
  renewal.resolve(900)
  await answer()
  expect(cache.get('a')).toBe(1_000)
})

test('error: keeps the value if a renewal fails, and allows the next renewal', async () => {
  let isDown = true
  const { cache, clock, fill } = createByHand({ maxRefreshes: 1 })
  await fill(['a'])
  clock.ms = 600
  const renew = async () => {
    if (isDown) throw new Error('down')
    return 1
  }
  expect(cache.get('a', renew)).toBe(0)
  await new Promise((resolve) => setImmediate(resolve))
  isDown = false
  expect(cache.get('a', renew)).toBe(0)
  await new Promise((resolve) => setImmediate(resolve))
  expect(cache.get('a')).toBe(1)
})

test('behavior: does not cache a value that was deleted while it was loaded', async () => {
  const { cache, answer, asked } = createByHand()
  const loaded = cache.get('a')
  cache.delete('a')
  await answer()
  expect(await loaded).toBe(0)
  expect(cache.has('a')).toBe(false)
  void cache.get('a')
  expect(asked()).toEqual(['a', 'a'])
  await answer()
})

test('behavior: removes the oldest values when their total size exceeds the maximum', async () => {
  const sizes = new Map([
    ['a', 4],
    ['b', 4],
    ['c', 4],
    ['large', 11],
  ])
  const cache = createCache<string, string>({
    load: async (key) => key,
    ttlMs: 1_000,
    max: 100,
    maxSize: 10,
    sizeOf: (value) => sizes.get(value) ?? 0,
    now: () => 0,
  })
  const known = () => [...sizes.keys()].filter((key) => cache.has(key))
  for (const key of ['a', 'b', 'c']) await cache.get(key)
  expect(known()).toEqual(['b', 'c'])
  expect(await cache.get('large')).toBe('large')
  expect(known()).toEqual(['b', 'c'])
  await cache.refresh('c')
  cache.delete('b')
  await cache.get('a')
  expect(known()).toEqual(['a', 'c'])
})
