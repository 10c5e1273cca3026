import type { Address } from 'viem'
import { expect, test } from 'vitest'
import { createBlockPace } from './blockPace.ts'

const wallet: Address = `0x${'a1'.repeat(20)}`
const other: Address = `0x${'b2'.repeat(20)}`

function openPace() {
  let ms = 0
  const pace = createBlockPace(() => ms)
  /** Whether the wallet gathers at these times. */
  const gathersAt = (...times: number[]) =>
    times.map((time) => {
      ms = time
      return pace.isGathering(wallet)
    })
  const mine = (time: number, block: bigint, by = wallet) => {
    ms = time
    pace.noteMined(by, block)
  }
  return { gathersAt, mine }
}

test('default: after a wallet’s batch is mined, the wallet waits for more callers for half of the interval between blocks', () => {
  const { gathersAt, mine } = openPace()
  mine(1_000, 10n)
  // The interval between blocks isn't known yet.
  expect(gathersAt(1_000)).toEqual([false])
  mine(3_000, 11n)
  expect(gathersAt(3_000, 3_999, 4_000)).toEqual([true, true, false])
  mine(4_500, 14n)
  expect(gathersAt(4_500, 4_749, 4_750)).toEqual([true, true, false])
})

test('behavior: a wallet does not wait for more callers after another wallet’s batch is mined', () => {
  const { gathersAt, mine } = openPace()
  mine(1_000, 10n)
  mine(3_000, 11n)
  mine(9_000, 14n, other)
  expect(gathersAt(9_000)).toEqual([false])
})

test('behavior: after hours without a block, a wallet waits for more callers for at most a second', () => {
  const { gathersAt, mine } = openPace()
  mine(0, 10n)
  mine(36_000_000, 11n)
  expect(gathersAt(36_000_999, 36_001_000)).toEqual([true, false])
})

test('behavior: the measured interval between blocks adapts to the chain, and ignores a block that is mined again after a reorg', () => {
  const { gathersAt, mine } = openPace()
  mine(0, 10n)
  mine(400, 11n)
  mine(500, 11n)
  mine(600, 9n)
  expect(gathersAt(799, 800)).toEqual([true, false])
  for (let block = 10n; block < 18n; block++) mine(600 + 2_000 * Number(block - 9n), block)
  expect(gathersAt(17_599, 17_600)).toEqual([true, false])
})
