import type { AnswerEntry } from '@tollkeeper/sdk/middleware/answerStore'
import { describe, expect, test } from 'vitest'
import { createAnswerPool } from './answerPool.ts'

const answer = (length: number): AnswerEntry => ({
  state: 'kept',
  target: '',
  digest: '',
  answer: { status: 200, headers: [], body: new Uint8Array(length) },
})

function openPool(limits: { maxBytes?: number; maxEntries?: number } = {}) {
  const clock = { ms: 0 }
  const shelfOf = createAnswerPool({ maxBytes: 10_000, maxEntries: 1_000, now: () => clock.ms, ...limits })
  const seller = (providerId: string, price: bigint, isTest = false) => {
    const shelf = shelfOf({ providerId, price, isTest })
    return {
      sell: (names: readonly string[], length = 1_000) => {
        for (const name of names) void shelf.put(name, answer(length), 600)
      },
      has: (names: readonly string[]) => names.filter((name) => shelf.find(name) !== undefined),
    }
  }
  return { clock, seller }
}

const named = (prefix: string, count: number) => Array.from({ length: count }, (_, n) => `${prefix}${n}`)

describe('a full pool', () => {
  test('behavior: many answers sold at a very low price evict no answer that was sold at a higher price', () => {
    const { seller } = openPool()
    const honest = seller('honest', 10_000n)
    honest.sell(named('honest', 8))
    const cheap = seller('cheap', 1n)
    cheap.sell(named('cheap', 140))
    expect(honest.has(named('honest', 8))).toEqual(named('honest', 8))
    expect(cheap.has(named('cheap', 140))).toEqual(['cheap139'])
  })

  test('behavior: sellers with equal prices share the pool, and the oldest answer is evicted first', () => {
    const { seller } = openPool()
    const [first, second] = [seller('first', 5_000n), seller('second', 5_000n)]
    first.sell(named('a', 9))
    second.sell(named('b', 9))
    expect([first.has(named('a', 9)).length, second.has(named('b', 9)).length].toSorted()).toEqual([4, 5])
    expect(first.has(named('a', 9)).at(-1)).toBe('a8')
  })

  test('error: answers of a provider that uses at most its equal share stay, regardless of another provider’s prices', () => {
    const { seller } = openPool()
    const honest = seller('honest', 10_000n)
    honest.sell(named('honest', 4))
    const greedy = seller('greedy', 1_000_000_000_000n)
    greedy.sell(named('greedy', 140))
    expect(honest.has(named('honest', 4))).toEqual(named('honest', 4))
    expect(greedy.has(named('greedy', 140))).toHaveLength(5)
    honest.sell(named('more', 9))
    expect(greedy.has(named('greedy', 140)).length).toBeGreaterThanOrEqual(4)
  })

  test('error: a price above 1 USDC counts as 1 USDC', () => {
    const { seller } = openPool()
    const [usual, greedy] = [seller('usual', 1_000_000n), seller('greedy', 1_000_000_000_000n)]
    usual.sell(named('usual', 4))
    greedy.sell(named('greedy', 4), 1_001)
    seller('third', 1_000_000n).sell(named('third', 2))
    expect(usual.has(named('usual', 4))).toHaveLength(4)
    expect(greedy.has(named('greedy', 4))).toEqual(['greedy1', 'greedy2', 'greedy3'])
  })

  test('behavior: answers paid in test money make room for answers paid in real money', () => {
    const { seller } = openPool()
    const [real, test] = [seller('real', 1n), seller('test', 1_000_000_000n, true)]
    real.sell(named('real', 8))
    test.sell(named('test', 20))
    expect(real.has(named('real', 8))).toHaveLength(8)
  })

  test('behavior: the number of answers is limited as well', () => {
    const { seller } = openPool({ maxEntries: 3 })
    const one = seller('one', 5_000n)
    one.sell(named('a', 5), 1)
    expect(one.has(named('a', 5))).toEqual(['a2', 'a3', 'a4'])
  })

  test('error: an answer larger than the pool is not kept', () => {
    const { seller } = openPool()
    const one = seller('one', 5_000n)
    one.sell(['large'], 20_000)
    expect(one.has(['large'])).toEqual([])
    one.sell(['small'])
    expect(one.has(['small'])).toEqual(['small'])
  })
})

test('behavior: expired answers are evicted first', () => {
  const { clock, seller } = openPool()
  const [early, late] = [seller('early', 1_000_000n), seller('late', 1n)]
  early.sell(named('early', 9))
  clock.ms = 600_001
  late.sell(named('late', 9))
  expect(early.has(named('early', 9))).toEqual([])
  expect(late.has(named('late', 9))).toHaveLength(9)
})

test('behavior: an answer is still found after the price has changed', () => {
  const { seller } = openPool()
  seller('one', 5_000n).sell(['a'])
  expect(seller('one', 6_000n).has(['a'])).toEqual(['a'])
})
