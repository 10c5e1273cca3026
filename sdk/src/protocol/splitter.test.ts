import fc from 'fast-check'
import type { Address } from 'viem'
import { describe, expect, test } from 'vitest'
import vectors from '../../../test/vectors/splitters.json' with { type: 'json' }
import tierVectors from '../../../test/vectors/tiers.json' with { type: 'json' }
import { encodeSplit, splitterAddress, splitterShares } from './splitter.ts'
import { type FeeSchedule, splitPrice } from './tier.ts'

const address = (digit: string): Address => `0x${digit.repeat(40)}`
const terms = {
  provider: address('a'),
  platform: address('b'),
  providerShare: 9n,
  platformShare: 1n,
} as const

describe('splitterAddress', () => {
  test.each(vectors.splitters)(
    'default: computes the address of the test vector "$name"',
    ({ terms, factory, split, address }) => {
      const parsed = {
        provider: terms.provider as Address,
        platform: terms.platform as Address,
        providerShare: BigInt(terms.providerShare),
        platformShare: BigInt(terms.platformShare),
      }
      expect(splitterAddress({ ...parsed, factory: factory as Address })).toBe(address.toLowerCase())
      expect(encodeSplit(parsed)).toBe(BigInt(split))
    },
  )

  test.each(['providerShare', 'platformShare'])('error: rejects an invalid %s', (name) => {
    for (const share of [-1n, 2n ** 48n]) {
      expect(() => splitterAddress({ ...terms, factory: address('c'), [name]: share })).toThrow(name)
    }
  })
})

describe('splitterShares', () => {
  const sharesOf = (price: bigint, schedule?: FeeSchedule) => {
    const { providerShare, platformShare } = splitterShares(price, splitPrice(price, schedule).feeAmount)
    return `${providerShare}:${platformShare}`
  }

  test.each(tierVectors.tiers)(
    'default: returns the shares of its tier for a price of $price',
    ({ price, shares }) => {
      expect(sharesOf(BigInt(price))).toBe(shares)
      expect(sharesOf(BigInt(price), 'flat')).toBe('49:1')
    },
  )

  test.each([
    [1_000n, 0n, { providerShare: 1n, platformShare: 0n }],
    [1_000n, 1_000n, { providerShare: 0n, platformShare: 1n }],
    [50_001n, 2_501n, { providerShare: 47_500n, platformShare: 2_501n }],
  ])(
    'args: returns exact shares for a price of %s and a fee of %s that doesn’t follow our schedule',
    (price, fee, shares) => {
      expect(splitterShares(price, fee)).toEqual(shares)
    },
  )

  test('behavior: uses the same splitter for all prices of a percentage tier', () => {
    const of = (from: number, below: number) =>
      new Set(Array.from({ length: below - from }, (_, index) => sharesOf(BigInt(from + index))))
    expect([...of(5_000, 10_000)]).toEqual(['9:1'])
    expect([...of(10_000, 1_000_000)]).toEqual(['19:1'])
  })

  test('behavior: pays the exact fee if a splitter holds a single payment, for any price', () => {
    const prices = fc.bigInt({ min: 5_000n, max: 2n ** 47n })
    fc.assert(
      fc.property(prices, fc.constantFrom('tiered', 'flat'), (price, schedule) => {
        const { feeAmount } = splitPrice(price, schedule)
        const { providerShare, platformShare } = splitterShares(price, feeAmount)
        expect((price * platformShare) / (providerShare + platformShare)).toBe(feeAmount)
      }),
    )
  })

  test.each([
    [0n, 0n],
    [-1n, 0n],
    [10n, 11n],
    [10n, -1n],
    [2n ** 49n, 1n],
  ])('error: rejects a price of %s with a fee of %s', (price, fee) => {
    expect(() => splitterShares(price, fee)).toThrow(RangeError)
  })
})
