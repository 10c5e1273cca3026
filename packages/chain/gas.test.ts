import { leastTabAmount, maxTabLines } from '@tollkeeper/sdk/protocol/tab'
import { describe, expect, test } from 'vitest'
import snapshots from '../../snapshots/tabs.json' with { type: 'json' }
import {
  batchGasCut,
  batchGasLimit,
  calldataFloor,
  countSweepsThatFit,
  countTabsThatFit,
  countThatFit,
  estimateBatchGas,
  estimateTabBatchGas,
  roomForSweeps,
  tabBatchGasLimit,
  transactionGasCap,
} from './gas.ts'

const pairs = (count: number, payee = (index: number) => `payee${index % 3}`) =>
  Array.from({ length: count }, (_, index) => ({ isPair: true, recipient: payee(index) }))

describe('countThatFit', () => {
  test('behavior: fits at least 175 payments into a batch if their few recipients already have USDC', () => {
    expect(countThatFit(pairs(150), false)).toBe(150)
    expect(countThatFit(pairs(400), false)).toBeGreaterThanOrEqual(175)
  })

  test('behavior: fits 141 payments into a batch if each of them pays another recipient that never had USDC', () => {
    expect(countThatFit(pairs(150, String), false)).toBe(141)
    expect(countThatFit(pairs(150, String).slice(141), false)).toBe(9)
  })

  test('behavior: estimates 0 to 3% more gas than `npm run bench -- gas` measures', () => {
    const measured = [
      [{ pairs: 100, singles: 0, payees: 0, hasCode: false }, 8_607_100n],
      [{ pairs: 150, singles: 0, payees: 0, hasCode: false }, 12_882_150n],
      [{ pairs: 150, singles: 0, payees: 149, hasCode: false }, 16_218_491n],
    ] as const
    for (const [shape, gas] of measured) {
      expect(estimateBatchGas(shape)).toBeGreaterThanOrEqual(gas)
      expect(estimateBatchGas(shape) * 100n).toBeLessThanOrEqual(gas * 103n)
    }
  })

  test('behavior: cuts a batch before the payment that would exceed the gas limit', () => {
    const fit = countThatFit(pairs(400), false)
    const shape = { singles: 0, payees: 3, hasCode: false }
    expect(estimateBatchGas({ ...shape, pairs: fit })).toBeLessThanOrEqual(batchGasCut)
    expect(estimateBatchGas({ ...shape, pairs: fit + 1 })).toBeGreaterThan(batchGasCut)
  })

  test('behavior: fits fewer payments if their recipients are new, far fewer if their payers have code, but always at least one', () => {
    expect(countThatFit(pairs(400, String), false)).toBeLessThan(countThatFit(pairs(400), false))
    expect(countThatFit(pairs(400), true)).toBeLessThan(30)
    expect(countThatFit(pairs(3), false, 1n)).toBe(1)
    expect(countThatFit([], false)).toBe(0)
  })
})

describe('batchGasLimit', () => {
  test('behavior: returns a limit between the minimum for the calldata and the maximum of a transaction', () => {
    expect(batchGasLimit({ pairs: 400, singles: 0, payees: 1, hasCode: false }, new Uint8Array(0))).toBe(
      transactionGasCap,
    )
    const long = new Uint8Array(20_000).fill(1)
    expect(calldataFloor(long)).toBe(21_000n + 40n * 20_000n)
    expect(batchGasLimit({ pairs: 1, singles: 0, payees: 1, hasCode: false }, long)).toBe(calldataFloor(long))
  })

  test('behavior: leaves the gas that the contract requires before the last call of a full batch', () => {
    const shape = { pairs: countThatFit(pairs(400), false), singles: 0, payees: 3, hasCode: false }
    expect(batchGasLimit(shape, new Uint8Array(0)) - estimateBatchGas(shape)).toBeGreaterThan(180_000n)
  })
})

test('behavior: reserves gas for the sweeps in a batch, but at most a quarter of the batch’s gas', () => {
  const shape = { pairs: 0, singles: 0, payees: 0, hasCode: false }
  expect(roomForSweeps(0)).toBe(0n)
  expect(roomForSweeps(3)).toBe(estimateBatchGas({ ...shape, sweeps: 3 }) - estimateBatchGas(shape))
  expect(roomForSweeps(1_000)).toBe(batchGasCut / 4n)
  const singles = Array.from({ length: 400 }, () => ({ isPair: false, recipient: 'splitter' }))
  const fit = countThatFit(singles, false, batchGasCut - roomForSweeps(20))
  expect(countSweepsThatFit({ ...shape, singles: fit, payees: 1 })).toBeGreaterThanOrEqual(20)
  expect(countThatFit(singles, false)).toBeGreaterThan(fit)
})

test('behavior: countSweepsThatFit returns how many sweeps fit into a batch below the gas limit', () => {
  const shape = { pairs: 0, singles: 100, payees: 100, hasCode: false }
  const sweeps = countSweepsThatFit(shape)
  expect(sweeps).toBeGreaterThan(40)
  expect(estimateBatchGas({ ...shape, sweeps })).toBeLessThanOrEqual(batchGasCut)
  expect(estimateBatchGas({ ...shape, sweeps: sweeps + 1 })).toBeGreaterThan(batchGasCut)
  expect(countSweepsThatFit({ ...shape, singles: 300 })).toBe(0)
})

describe('a batch of tabs', () => {
  const tabsOf = (count: number, splits: number) =>
    Array.from({ length: count }, () => ({
      lines: splits,
      splits: Array.from({ length: splits }, (_, index) => `${index}`),
    }))
  const noCalldata = new Uint8Array(0)

  test('behavior: is estimated at 0 to 3% more gas than its gas snapshot plus one new storage slot per provider', () => {
    // Gas for writing to a storage slot that was empty.
    const newPayout = 22_100n
    for (const [name, shape] of [
      ['100 payers, 1 provider x 10 requests', { tabs: 100, lines: 100, splits: 1 }],
      ['100 payers, 20 providers x 10 requests', { tabs: 100, lines: 2_000, splits: 20 }],
      ['100 payers, 5 of 20 providers x 10 requests', { tabs: 100, lines: 500, splits: 20 }],
      ['100 payers, 20 of 100 providers x 10 requests', { tabs: 100, lines: 2_000, splits: 100 }],
    ] as const) {
      const gas = BigInt(snapshots[name]) + BigInt(shape.splits) * newPayout
      const estimate = estimateTabBatchGas({ ...shape, hasCode: false })
      expect(estimate, name).toBeGreaterThanOrEqual(gas)
      expect(estimate * 100n, name).toBeLessThanOrEqual(gas * 103n)
    }
  })

  test('behavior: has a gas limit that includes the gas that the contract requires before its last call, up to the maximum of a transaction', () => {
    const shape = { tabs: 100, lines: 2_000, splits: 20, hasCode: false }
    const payouts = 20n * 34_000n
    const reserve = (120_000n * 64n) / 63n + 60_000n + 100n * 500n + 2_000n * 250n + 22n * 55_000n
    expect(tabBatchGasLimit(shape, noCalldata)).toBe(estimateTabBatchGas(shape) - payouts + reserve)
    expect(tabBatchGasLimit({ ...shape, tabs: 400 }, noCalldata)).toBe(transactionGasCap)
    const long = new Uint8Array(300_000).fill(1)
    expect(tabBatchGasLimit({ ...shape, tabs: 1 }, long)).toBe(calldataFloor(long))
  })

  test('behavior: the minimum amount per unit of gas is at least as high for a tab with many lines as for a tab with one line', () => {
    const gasOf = (lines: number) => estimateTabBatchGas({ tabs: 1, lines, splits: lines, hasCode: false })
    for (const lines of [2, 8, 20, maxTabLines]) {
      const [perGas, ofOneLine] = [lines, 1].map(
        (count) => (leastTabAmount(10n ** 18n, count) * 10n ** 9n) / gasOf(count),
      )
      expect(perGas, `${lines} lines`).toBeGreaterThanOrEqual(ofOneLine as bigint)
    }
  })

  test('behavior: ends before the tab that would exceed the maximum gas limit, but always contains at least one tab', () => {
    expect(countTabsThatFit(tabsOf(400, 1), false)).toBeGreaterThan(300)
    expect(countTabsThatFit(tabsOf(400, 20), false)).toBeGreaterThan(200)
    expect(countTabsThatFit(tabsOf(400, 100), false)).toBeGreaterThan(75)
    expect(countTabsThatFit(tabsOf(400, 1), true)).toBeLessThan(50)
    const fit = countTabsThatFit(tabsOf(400, 20), false)
    const limitOf = (tabs: number) =>
      tabBatchGasLimit({ tabs, lines: 20 * tabs, splits: 20, hasCode: false }, noCalldata)
    expect(limitOf(fit)).toBeLessThanOrEqual(batchGasCut)
    expect(limitOf(fit + 1)).toBeGreaterThan(batchGasCut)
    expect([countTabsThatFit(tabsOf(3, 1), false, 1n), countTabsThatFit([], false)]).toEqual([1, 0])
  })
})
