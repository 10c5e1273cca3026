import { describe, expect, test } from 'vitest'
import {
  batchGasCut,
  batchGasLimit,
  calldataFloor,
  countSweepsThatFit,
  countThatFit,
  estimateBatchGas,
  roomForSweeps,
  transactionGasCap,
} from './gas.ts'

const pairs = (count: number, payee = (index: number) => `payee${index % 3}`) =>
  Array.from({ length: count }, (_, index) => ({ isPair: true, recipient: payee(index) }))

describe('countThatFit', () => {
  test('behavior: the 150 payments of a raised count fit, as do more of a few providers', () => {
    expect(countThatFit(pairs(150), false)).toBe(150)
    expect(countThatFit(pairs(400), false)).toBeGreaterThanOrEqual(175)
  })

  test('behavior: of 150 providers that never had USDC, 141 fit; the others are the next batch', () => {
    expect(countThatFit(pairs(150, String), false)).toBe(141)
    expect(countThatFit(pairs(150, String).slice(141), false)).toBe(9)
  })

  test('behavior: the model is at or above what `npm run bench -- gas` measured, by 3 % at most', () => {
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

  test('behavior: cuts where the model passes the cut', () => {
    const fit = countThatFit(pairs(400), false)
    const shape = { singles: 0, payees: 3, hasCode: false }
    expect(estimateBatchGas({ ...shape, pairs: fit })).toBeLessThanOrEqual(batchGasCut)
    expect(estimateBatchGas({ ...shape, pairs: fit + 1 })).toBeGreaterThan(batchGasCut)
  })

  test('behavior: many new payees fit fewer, payers with code far fewer, one always', () => {
    expect(countThatFit(pairs(400, String), false)).toBeLessThan(countThatFit(pairs(400), false))
    expect(countThatFit(pairs(400), true)).toBeLessThan(30)
    expect(countThatFit(pairs(3), false, 1n)).toBe(1)
    expect(countThatFit([], false)).toBe(0)
  })
})

describe('batchGasLimit', () => {
  test('behavior: never over the cap, never under the calldata floor (KEEPER 11)', () => {
    expect(batchGasLimit({ pairs: 400, singles: 0, payees: 1, hasCode: false }, new Uint8Array(0))).toBe(
      transactionGasCap,
    )
    const long = new Uint8Array(20_000).fill(1)
    expect(calldataFloor(long)).toBe(21_000n + 40n * 20_000n)
    expect(batchGasLimit({ pairs: 1, singles: 0, payees: 1, hasCode: false }, long)).toBe(calldataFloor(long))
  })

  test('behavior: a full batch keeps what the contract wants to see before its last call', () => {
    const shape = { pairs: countThatFit(pairs(400), false), singles: 0, payees: 3, hasCode: false }
    expect(batchGasLimit(shape, new Uint8Array(0)) - estimateBatchGas(shape)).toBeGreaterThan(180_000n)
  })
})

test('behavior: the room for sweeps is what they take, and a quarter of a batch at most', () => {
  const shape = { pairs: 0, singles: 0, payees: 0, hasCode: false }
  expect(roomForSweeps(0)).toBe(0n)
  expect(roomForSweeps(3)).toBe(estimateBatchGas({ ...shape, sweeps: 3 }) - estimateBatchGas(shape))
  expect(roomForSweeps(1_000)).toBe(batchGasCut / 4n)
  const singles = Array.from({ length: 400 }, () => ({ isPair: false, recipient: 'splitter' }))
  const fit = countThatFit(singles, false, batchGasCut - roomForSweeps(20))
  expect(countSweepsThatFit({ ...shape, singles: fit, payees: 1 })).toBeGreaterThanOrEqual(20)
  expect(countThatFit(singles, false)).toBeGreaterThan(fit)
})

test('behavior: as many sweeps are added as fit under the cut', () => {
  const shape = { pairs: 0, singles: 100, payees: 100, hasCode: false }
  const sweeps = countSweepsThatFit(shape)
  expect(sweeps).toBeGreaterThan(40)
  expect(estimateBatchGas({ ...shape, sweeps })).toBeLessThanOrEqual(batchGasCut)
  expect(estimateBatchGas({ ...shape, sweeps: sweeps + 1 })).toBeGreaterThan(batchGasCut)
  expect(countSweepsThatFit({ ...shape, singles: 300 })).toBe(0)
})

test('behavior: tabs are cut so that their limit, with what is kept back for payouts, stays off the cap', () => {
  const tabs = (providers: number, lines: number) =>
    Array.from({ length: 400 }, (_, tab) => ({
      ...{ isPair: false, recipient: 'contract' },
      tab: {
        lines,
        splits: Array.from({ length: lines }, (_, line) => `${(tab + line) % providers}`),
      },
    }))
  for (const [providers, lines] of [
    [1, 1],
    [20, 20],
    [400, 1],
  ] as const) {
    const fit = countThatFit(tabs(providers, lines), false)
    const splits = Math.min(providers, fit + lines - 1)
    const shape = { pairs: 0, singles: 0, payees: 0, hasCode: false, tabs: fit, lines: fit * lines, splits }
    expect(batchGasLimit(shape, new Uint8Array(0))).toBeLessThanOrEqual(batchGasCut)
    expect(batchGasLimit(shape, new Uint8Array(0))).toBeGreaterThan(estimateBatchGas(shape) + 180_000n)
  }
  expect(countThatFit(tabs(1, 1), false)).toBeGreaterThan(280)
  expect(countThatFit(tabs(20, 20), false)).toBeGreaterThan(220)
  expect(countThatFit(tabs(400, 1), false)).toBeLessThan(120)
  expect(countThatFit(tabs(1, 1), true)).toBeLessThan(50)
})
