import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import { bumpFees, initialFees } from './fees.ts'

const gwei = 1_000_000_000n
const cap = 100n * gwei

describe('initialFees', () => {
  test('doubles the base fee and adds the priority fee', () => {
    expect(initialFees(10n * gwei, gwei, cap)).toEqual({
      maxFeePerGas: 21n * gwei,
      maxPriorityFeePerGas: gwei,
    })
  })

  test('behavior: never exceeds the cap', () => {
    expect(initialFees(80n * gwei, 200n * gwei, cap)).toEqual({
      maxFeePerGas: cap,
      maxPriorityFeePerGas: cap,
    })
  })
})

describe('bumpFees', () => {
  test('behavior: raises both fields by at least 10%, regardless of the current price', () => {
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

  test('behavior: follows the market price if it is higher', () => {
    const current = { maxFeePerGas: 40n * gwei, maxPriorityFeePerGas: 5n * gwei }
    expect(bumpFees({ maxFeePerGas: 20n * gwei, maxPriorityFeePerGas: gwei }, current, cap)).toEqual(current)
  })

  test('behavior: raises up to the cap, and returns null if the required increase exceeds the cap', () => {
    const current = { maxFeePerGas: gwei, maxPriorityFeePerGas: gwei }
    expect(
      bumpFees({ maxFeePerGas: 90n * gwei, maxPriorityFeePerGas: gwei }, current, cap)?.maxFeePerGas,
    ).toBe(cap)
    expect(bumpFees({ maxFeePerGas: 95n * gwei, maxPriorityFeePerGas: gwei }, current, cap)).toBeNull()
  })
})
