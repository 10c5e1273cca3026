import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import vectors from '../../../test/vectors/tiers.json' with { type: 'json' }
import { breakEvenPrice, effectiveRate, percentageOf, splitAnyPrice, splitPrice } from './tier.ts'

describe('splitPrice', () => {
  test('default: splits a price into the provider’s part and the fee', () => {
    expect(splitPrice(50_000n)).toEqual({
      tier: 'micropayment',
      price: 50_000n,
      providerAmount: 47_500n,
      feeAmount: 2_500n,
    })
  })

  test.each(vectors.tiers)(
    'args: splits the price $price',
    ({ price, tier, feeAmount, effectiveRate: rate }) => {
      const split = splitPrice(BigInt(price))
      expect(split).toMatchObject({ tier, feeAmount: BigInt(feeAmount) })
      expect(effectiveRate(split.price, split.feeAmount)).toBe(rate)
    },
  )

  test.each(vectors.tiers)(
    'args: splits the price $price with the flat schedule',
    ({ price, tier, flatFeeAmount }) => {
      expect(splitPrice(BigInt(price), 'flat')).toMatchObject({ tier, feeAmount: BigInt(flatFeeAmount) })
    },
  )

  test.each(vectors.belowMinimum)('error: rejects the price %s, which is below the minimum', (price) => {
    expect(() => splitPrice(BigInt(price))).toThrow(expect.objectContaining({ code: 'price_below_minimum' }))
  })

  test('behavior: both parts are positive and sum to the price', () => {
    fc.assert(
      fc.property(fc.bigInt(5_000n, 2n ** 63n), fc.constantFrom('tiered', 'flat'), (price, schedule) => {
        const { providerAmount, feeAmount } = splitPrice(price, schedule)
        expect(providerAmount + feeAmount).toBe(price)
        expect(feeAmount > 0n && providerAmount > 0n).toBe(true)
      }),
    )
  })
})

describe('effectiveRate', () => {
  test('default: returns the fee as a fraction of the price', () => {
    expect(effectiveRate(50_000n, 2_500n)).toBe('0.05')
  })

  test('args: returns 0 if there is no fee, and 1 if the fee is the whole price', () => {
    expect(effectiveRate(50_000n, 0n)).toBe('0')
    expect(effectiveRate(50_000n, 50_000n)).toBe('1')
  })

  test('behavior: truncates, never rounds up', () => {
    expect(effectiveRate(3n, 2n)).toBe('0.666666')
  })
})

describe('percentageOf', () => {
  test.each([
    [50_000n, 2_500n, 500n],
    [50_019n, 2_500n, 500n],
    [50_001n, 2_501n, undefined],
    [50_000n, 1_000n, 200n],
    [50_000n, 0n, undefined],
  ])('args: for a price of %d and a fee of %d, returns %s basis points', (price, fee, expected) => {
    expect(percentageOf(price, fee)).toBe(expected)
  })
})

describe('breakEvenPrice', () => {
  test.each([
    ['0 USD', 0n, 1n],
    // 10% of 0.0043 USDC covers the cost, and so does the fee of 5% from 0.01 USDC on, which is at least 0.0005 USDC.
    ['0.00043 USD', 430_000_000n, 4_300n],
    ['0.0005 USD', 500_000_000n, 5_000n],
    [
      'slightly more than 0.0005 USD, which the fee of a price of 0.01 USDC no longer covers',
      500_000_001n,
      10_020n,
    ],
    ['0.01 USD', 10_000_000_000n, 200_000n],
    ['0.06 USD, which the fixed part of the fee of a price of 1 USDC covers', 60_000_000_000n, 1_000_000n],
    ['0.1 USD', 100_000_000_000n, 1_666_667n],
    ['1 USD', 1_000_000_000_000n, 38_000_000n],
  ])('returns the price whose fee covers %s', (_, cost, price) => {
    expect(breakEvenPrice(cost)).toBe(price)
  })

  test('returns the lowest price from which on every fee covers the cost', () => {
    const schedules = fc.constantFrom('tiered' as const, 'flat' as const)
    fc.assert(
      fc.property(fc.bigInt(1n, 10n ** 13n), fc.bigInt(0n, 10n ** 9n), schedules, (cost, above, schedule) => {
        const price = breakEvenPrice(cost, schedule)
        const feeOf = (one: bigint) => splitAnyPrice(one, schedule).feeAmount * 1_000_000n
        expect(feeOf(price + above)).toBeGreaterThanOrEqual(cost)
        // The prices on both sides of each tier's boundary.
        for (const edge of [10_000n, 1_000_000n, 10_000_000n])
          if (edge >= price) expect(feeOf(edge)).toBeGreaterThanOrEqual(cost)
        if (price > 1n) expect(feeOf(price - 1n)).toBeLessThan(cost)
      }),
    )
  })
})
