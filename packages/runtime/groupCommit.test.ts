import { expect, test, vi } from 'vitest'
import { createGroupCommit } from './groupCommit.ts'

const settings = { maxItems: 3, concurrency: 1, isItemFault: () => true }

test('behavior: collects the items that arrive while a group is in progress, and commits up to maxItems of them together, in order', async () => {
  const groups: number[][] = []
  const { submit } = createGroupCommit<number, number>({
    ...settings,
    commit: async (items) => {
      groups.push(items)
      await new Promise((resolve) => setImmediate(resolve))
      return items.map((item) => item * 10)
    },
  })
  const first = submit(0)
  await new Promise((resolve) => setImmediate(resolve))
  const rest = [1, 2, 3, 4].map(submit)
  expect(await Promise.all([first, ...rest])).toEqual([0, 10, 20, 30, 40])
  expect(groups).toEqual([[0], [1, 2, 3], [4]])
})

test('behavior: starts a second group if enough items wait, and otherwise when the first group is done', async () => {
  const groups: number[][] = []
  const done: (() => void)[] = []
  const { submit } = createGroupCommit<number, number>({
    ...settings,
    concurrency: 2,
    beside: { items: 2, afterMs: 60_000 },
    commit: async (items) => {
      groups.push(items)
      await new Promise<void>((resolve) => done.push(resolve))
      return items
    },
  })
  const turn = () => new Promise((resolve) => setImmediate(resolve))
  const all = [submit(0)]
  await turn()
  all.push(submit(1))
  await turn()
  expect(groups).toEqual([[0]])
  all.push(submit(2))
  await turn()
  expect(groups).toEqual([[0], [1, 2]])
  all.push(submit(3))
  done.shift()?.()
  await turn()
  await turn()
  // One item waits, but the other group is still in progress, so no third group starts.
  expect(groups).toHaveLength(2)
  done.shift()?.()
  await vi.waitUntil(() => groups.length === 3)
  done.shift()?.()
  expect(await Promise.all(all)).toEqual([0, 1, 2, 3])
})

test('behavior: starts a second group after a delay if the first group is stuck, even if few items wait', async () => {
  const stuck = Promise.withResolvers<number[]>()
  const { submit } = createGroupCommit<number, number>({
    ...settings,
    concurrency: 2,
    beside: { items: 3, afterMs: 1 },
    commit: async (items) => (items.includes(0) ? stuck.promise : items),
  })
  const first = submit(0)
  await new Promise((resolve) => setImmediate(resolve))
  expect(await submit(1)).toBe(1)
  stuck.resolve([0])
  expect(await first).toBe(0)
})

test('behavior: fails only the item that caused an error', async () => {
  const { submit } = createGroupCommit<number, number>({
    ...settings,
    commit: async (items) => {
      if (items.includes(2)) throw new Error('two')
      return items
    },
  })
  const results = await Promise.allSettled([1, 2, 3].map(submit))
  expect(results.map(({ status }) => status)).toEqual(['fulfilled', 'rejected', 'fulfilled'])
})

test('behavior: fails the whole group immediately if no item caused the error', async () => {
  let commits = 0
  const { submit } = createGroupCommit<number, number>({
    ...settings,
    isItemFault: () => false,
    commit: async () => {
      commits++
      throw new Error('the database is gone')
    },
  })
  const results = await Promise.allSettled([1, 2, 3].map(submit))
  expect(results.map(({ status }) => status)).toEqual(['rejected', 'rejected', 'rejected'])
  expect(commits).toBe(1)
})

test('behavior: rejects an item immediately if the maximum number of items is already waiting, and still commits the waiting items', async () => {
  const { submit } = createGroupCommit<number, number>({
    ...settings,
    maxWaiting: 2,
    commit: async (items) => items,
  })
  const first = [0, 1].map(submit)
  await expect(submit(2)).rejects.toMatchObject({ code: 'overloaded', status: 503, retryable: true })
  expect(await Promise.all(first)).toEqual([0, 1])
  expect(await submit(3)).toBe(3)
})

test('behavior: if no group is in progress, starts a group when the waiting items reach the number or the age in the option `alone`', async () => {
  vi.useFakeTimers({ toFake: ['setTimeout'] })
  try {
    const groups: number[][] = []
    const { submit } = createGroupCommit<number, number>({
      ...settings,
      alone: { items: 3, afterMs: 250 },
      commit: async (items) => {
        groups.push(items)
        return items
      },
    })
    const turn = () => new Promise((resolve) => setImmediate(resolve))
    const first = submit(0)
    await turn()
    vi.advanceTimersByTime(249)
    const second = submit(1)
    await turn()
    expect(groups).toEqual([])
    vi.advanceTimersByTime(1)
    expect(await Promise.all([first, second])).toEqual([0, 1])
    expect(groups).toEqual([[0, 1]])
    expect(await Promise.all([2, 3, 4].map(submit))).toEqual([2, 3, 4])
    expect(groups).toEqual([
      [0, 1],
      [2, 3, 4],
    ])
  } finally {
    vi.useRealTimers()
  }
})

test('behavior: takes items from the callers in turn, and if too many items wait, rejects an item of the caller with the most waiting items', async () => {
  const groups: string[][] = []
  const first = Promise.withResolvers<void>()
  const { submit } = createGroupCommit<string, string>({
    ...settings,
    maxWaiting: 8,
    callerOf: (item) => item[0] ?? '',
    commit: async (items) => {
      groups.push(items)
      await first.promise
      return items
    },
  })
  const all = [submit('a0')]
  await new Promise((resolve) => setImmediate(resolve))
  const crowd = ['a1', 'a2', 'a3', 'a4', 'a5', 'a6', 'a7', 'a8'].map(submit)
  all.push(...crowd.slice(0, 7), submit('b1'))
  await expect(crowd[7]).rejects.toMatchObject({ code: 'overloaded' })
  // The new item's caller already has the most waiting items, so the new item itself is rejected.
  await expect(submit('a9')).rejects.toMatchObject({ code: 'overloaded' })
  first.resolve()
  await Promise.all(all)
  expect(groups).toEqual([['a0'], ['a1', 'b1', 'a2'], ['a3', 'a4', 'a5'], ['a6', 'a7']])
})
