import { describe, expect, test } from 'vitest'
import { type Arrival, arrivalTimes, simulateTriggers } from './simulateTriggers.ts'
import { defaultTriggers } from './triggers.ts'

const minute = 60_000
const cheap = () => 0n
const payments = (count: number, everyMs: number, price = 10_000n): Arrival[] =>
  Array.from({ length: count }, (_, index) => ({ at: index * everyMs, price, amount: (price * 95n) / 100n }))
const batchesOf = (arrivals: readonly Arrival[], costOf: (count: number) => bigint = cheap) =>
  simulateTriggers(arrivals, defaultTriggers, costOf).map(({ at, trigger, arrivals: own }) => ({
    minute: at / minute,
    trigger,
    count: own.length,
  }))

describe('simulateTriggers', () => {
  test('settles a few payments by time, each batch within an hour of its oldest payment', () => {
    expect(batchesOf(payments(5, 20 * minute))).toEqual([
      { minute: 59, trigger: 'time', count: 3 },
      { minute: 119, trigger: 'time', count: 2 },
    ])
  })

  test('settles many small payments by count', () => {
    expect(batchesOf(payments(200, 1_000, 5_000n))).toMatchObject([
      { trigger: 'count', count: 100 },
      { trigger: 'count', count: 100 },
    ])
  })

  test('settles by the amount that one wallet receives, without the fee', () => {
    expect(batchesOf(payments(11, 1_000, 100_000n))).toMatchObject([{ trigger: 'amount', count: 11 }])
  })

  test('raises count and amount while settling is expensive', () => {
    const expensive = () => defaultTriggers.raisedAboveCost + 1n
    expect(batchesOf(payments(150, 1_000, 5_000n), expensive)).toMatchObject([
      { trigger: 'count', count: 150 },
    ])
    expect(batchesOf(payments(22, 1_000, 100_000n), expensive)).toMatchObject([
      { trigger: 'amount', count: 22 },
    ])
  })

  test('settles a high-value payment immediately and alone', () => {
    const [first, second] = payments(2, minute)
    const large: Arrival = { at: 30_000, price: 10_000_000n, amount: 9_700_000n }
    expect(batchesOf([first as Arrival, large, second as Arrival])).toEqual([
      { minute: 0.5, trigger: 'high_value', count: 1 },
      { minute: 59, trigger: 'time', count: 2 },
    ])
  })

  test('counts each wallet separately, and settles all waiting payments together', () => {
    const two = payments(20, 1_000, 100_000n).map((one, index) => ({ ...one, wallet: index % 2 }))
    expect(batchesOf([...two, { ...(two[0] as Arrival), at: 20_000 }])).toMatchObject([
      { trigger: 'amount', count: 21 },
    ])
  })

  test('counts a tab’s wait from its first purchase', () => {
    const tab: Arrival = { at: 59 * minute, waitsSince: 0, price: 200_000n, amount: 190_000n }
    expect(batchesOf([tab])).toEqual([{ minute: 59, trigger: 'time', count: 1 }])
  })
})

test('arrival times are equal for equal seeds, ascending, and on average as many as requested', () => {
  const times = arrivalTimes({ perDay: 1_000, days: 30, seed: 7 })
  expect(times).toEqual(arrivalTimes({ perDay: 1_000, days: 30, seed: 7 }))
  expect(times).not.toEqual(arrivalTimes({ perDay: 1_000, days: 30, seed: 8 }))
  expect(times.every((at, index) => at > (times[index - 1] ?? -1) && at < 30 * 86_400_000)).toBe(true)
  expect(times.length).toBeGreaterThan(29_000)
  expect(times.length).toBeLessThan(31_000)
})
