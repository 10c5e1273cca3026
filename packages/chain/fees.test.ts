import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import { bumpFees, initialFees } from './fees.ts'

const gwei = 1_000_000_000n
const cap = 100n * gwei

describe('initialFees', () => {
  test('default', () => {
    expect(initialFees(10n * gwei, gwei, cap)).toEqual({
      maxFeePerGas: 21n * gwei,
      maxPriorityFeePerGas: gwei,
    })
  })

  test('behavior: never above the cap', () => {
    expect(initialFees(80n * gwei, 200n * gwei, cap)).toEqual({
      maxFeePerGas: cap,
      maxPriorityFeePerGas: cap,
    })
  })
})

describe('bumpFees', () => {
  test('behavior: both fields rise by 10 % at least, whatever is asked for now', () => {
    fc.assert(
      fc.property(
        fc.bigInt(0n, 50n * gwei),
        fc.bigInt(0n, 50n * gwei),
        fc.bigInt(0n, 60n * gwei),
        (maxFee, priority, current) => {
          const stored = { maxFeePerGas: maxFee + priority, maxPriorityFeePerGas: priority }
          const bumped = bumpFees(
            stored,
            { maxFeePerGas: current, maxPriorityFeePerGas: current / 2n },
            2n * cap,
          )
          expect(bumped).not.toBeNull()
          if (!bumped) return
          expect(bumped.maxFeePerGas * 100n).toBeGreaterThanOrEqual(stored.maxFeePerGas * 110n)
          expect(bumped.maxPriorityFeePerGas * 100n).toBeGreaterThanOrEqual(
            stored.maxPriorityFeePerGas * 110n,
          )
          expect(bumped.maxPriorityFeePerGas).toBeGreaterThan(stored.maxPriorityFeePerGas)
          expect(bumped.maxFeePerGas).toBeGreaterThanOrEqual(bumped.maxPriorityFeePerGas)
        },
      ),
    )
  })

  test('behavior: follows the market where that is higher', () => {
    const current = { maxFeePerGas: 40n * gwei, maxPriorityFeePerGas: 5n * gwei }
    expect(bumpFees({ maxFeePerGas: 20n * gwei, maxPriorityFeePerGas: gwei }, current, cap)).toEqual(current)
  })

  test('behavior: stops at the cap, and gives up where the cap leaves no room', () => {
    const current = { maxFeePerGas: gwei, maxPriorityFeePerGas: gwei }
    expect(
      bumpFees({ maxFeePerGas: 90n * gwei, maxPriorityFeePerGas: gwei }, current, cap)?.maxFeePerGas,
    ).toBe(cap)
    expect(bumpFees({ maxFeePerGas: 95n * gwei, maxPriorityFeePerGas: gwei }, current, cap)).toBeNull()
  })
})
