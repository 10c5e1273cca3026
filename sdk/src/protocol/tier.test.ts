import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import vectors from '../../../test/vectors/tiers.json' with { type: 'json' }
import { effectiveRate, percentageOf, splitPrice } from './tier.ts'

describe('splitPrice', () => {
  test('default', () => {
    expect(splitPrice(50_000n)).toEqual({
      tier: 'micropayment',
      price: 50_000n,
      providerAmount: 47_500n,
      feeAmount: 2_500n,
    })
  })

  test.each(vectors.tiers)('args: price $price', ({ price, tier, feeAmount, effectiveRate: rate }) => {
    const split = splitPrice(BigInt(price))
    expect(split).toMatchObject({ tier, feeAmount: BigInt(feeAmount) })
    expect(effectiveRate(split.price, split.feeAmount)).toBe(rate)
  })

  test.each(vectors.tiers)('args: price $price, flat', ({ price, tier, flatFeeAmount }) => {
    expect(splitPrice(BigInt(price), 'flat')).toMatchObject({ tier, feeAmount: BigInt(flatFeeAmount) })
  })

  test.each(vectors.belowMinimum)('error: price %s', (price) => {
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
  test('default', () => {
    expect(effectiveRate(50_000n, 2_500n)).toBe('0.05')
  })

  test('args: no fee, all fee', () => {
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
  ])('args: of a price of %d a fee of %d, rounded down, is %s basis points', (price, fee, expected) => {
    expect(percentageOf(price, fee)).toBe(expected)
  })
})
