import { expect, test } from 'vitest'
import { repeat, retryAfterMs } from './repeat.ts'

test('default: runs steps until it is stopped, and then waits for the step in progress', async () => {
  const third = Promise.withResolvers<void>()
  const release = Promise.withResolvers<void>()
  let steps = 0
  let isOver = false
  const loop = repeat({
    name: 'test',
    everyMs: 0,
    step: async () => {
      steps += 1
      if (steps < 3) return
      third.resolve()
      await release.promise
      isOver = true
    },
    onError: () => {},
  })
  await third.promise
  const stopped = loop.stop()
  release.resolve()
  await stopped
  expect([steps, isOver]).toEqual([3, true])
})

test('behavior: reports and retries a failed step, and does not count it as completed', async () => {
  const told: number[] = []
  const enough = Promise.withResolvers<void>()
  const loop = repeat({
    name: 'test',
    everyMs: 1,
    step: () => Promise.reject(new Error('down')),
    onError: (_, failures) => {
      told.push(failures)
      if (failures === 3) enough.resolve()
    },
  })
  const startedAt = performance.now()
  await enough.promise
  const least = performance.now() - startedAt
  expect(loop.sinceStepMs()).toBeGreaterThanOrEqual(least - 1)
  await loop.stop()
  expect(told.slice(0, 3)).toEqual([1, 2, 3])
})

test('behavior: starts the next step without a pause after the result `busy`, and when `wake` is called', async () => {
  let steps = 0
  let done = Promise.withResolvers<void>()
  const loop = repeat({
    name: 'test',
    everyMs: 3_600_000,
    step: async () => {
      steps += 1
      if (steps % 3 !== 0) return 'busy'
      done.resolve()
      return 'idle'
    },
    onError: () => {},
  })
  await done.promise
  done = Promise.withResolvers()
  // Wait until the step has ended, because the pause that `wake` ends begins only then.
  await new Promise(setImmediate)
  loop.wake()
  await done.promise
  await loop.stop()
  expect(steps).toBe(6)
})

test('behavior: retries soon after a first failure, and waits longer after each further failure', () => {
  const pauses = (everyMs: number) => Array.from({ length: 9 }, (_, at) => retryAfterMs(everyMs, at + 1))
  expect(pauses(5_000)).toEqual([100, 200, 400, 800, 1_600, 3_200, 6_400, 12_800, 15_000])
  expect(pauses(100)).toEqual([100, 200, 400, 800, 1_600, 3_200, 6_400, 10_100, 10_100])
})
