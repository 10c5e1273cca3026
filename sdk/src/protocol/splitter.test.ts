import fc from 'fast-check'
import type { Address } from 'viem'
import { describe, expect, test } from 'vitest'
import vectors from '../../../test/vectors/splitters.json' with { type: 'json' }
import { encodeSplit, splitterAddress, splitterShares } from './splitter.ts'
import { splitPrice } from './tier.ts'

const address = (digit: string): Address => `0x${digit.repeat(40)}`
const terms = {
  provider: address('a'),
  platform: address('b'),
  providerShare: 9n,
  platformShare: 1n,
} as const

describe('splitterAddress', () => {
  test.each(vectors.splitters)('default: $name', ({ terms, factory, split, address }) => {
    const { provider, platform, ...shares } = terms
    const [providerShare, platformShare, rewardShare] = [
      BigInt(shares.providerShare),
      BigInt(shares.platformShare),
      BigInt(shares.rewardShare),
    ]
    const parsed = {
      provider: provider as Address,
      platform: platform as Address,
      providerShare,
      platformShare,
    }
    expect(splitterAddress({ ...parsed, rewardShare, factory: factory as Address })).toBe(
      address.toLowerCase(),
    )
    expect(encodeSplit(parsed)).toBe(BigInt(split))
  })

  test('args: no reward is a reward of 0', () => {
    const factory = address('c')
    expect(splitterAddress({ ...terms, factory })).toBe(
      splitterAddress({ ...terms, rewardShare: 0n, factory }),
    )
  })

  test.each(['providerShare', 'platformShare', 'rewardShare'])('error: %s', (name) => {
    for (const share of [-1n, 2n ** 48n]) {
      expect(() => splitterAddress({ ...terms, factory: address('c'), [name]: share })).toThrow(name)
    }
  })
})

describe('splitterShares', () => {
  test.each([
    [10_000n, 1_000n, 0n, { providerShare: 9n, platformShare: 1n, rewardShare: 0n }],
    [5_000n, 500n, 0n, { providerShare: 9n, platformShare: 1n, rewardShare: 0n }],
    [50_000n, 2_500n, 0n, { providerShare: 19n, platformShare: 1n, rewardShare: 0n }],
    [1_000_000n, 80_000n, 0n, { providerShare: 23n, platformShare: 2n, rewardShare: 0n }],
    [1_000n, 0n, 0n, { providerShare: 1n, platformShare: 0n, rewardShare: 0n }],
    [1_000n, 1_000n, 0n, { providerShare: 0n, platformShare: 1n, rewardShare: 0n }],
    [50_000n, 2_500n, 250n, { providerShare: 190n, platformShare: 9n, rewardShare: 1n }],
    [50_000n, 2_500n, 2_500n, { providerShare: 19n, platformShare: 0n, rewardShare: 1n }],
  ])('default: %s with a fee of %s and a reward of %s', (price, fee, reward, shares) => {
    expect(splitterShares(price, fee, reward)).toEqual(shares)
  })

  test('behavior: a price is a whole number of units, and its fee comes out exactly', () => {
    const prices = fc.bigInt({ min: 5_000n, max: 2n ** 47n })
    fc.assert(
      fc.property(prices, fc.bigInt({ min: 0n, max: 100n }), (price, percent) => {
        const { feeAmount } = splitPrice(price)
        const reward = (feeAmount * percent) / 100n
        const { providerShare, platformShare, rewardShare } = splitterShares(price, feeAmount, reward)
        const unit = providerShare + platformShare + rewardShare
        expect(price % unit).toBe(0n)
        expect((price / unit) * providerShare).toBe(price - feeAmount)
        expect((price / unit) * rewardShare).toBe(reward)
      }),
    )
  })

  test.each([
    [0n, 0n, 0n],
    [-1n, 0n, 0n],
    [10n, 11n, 0n],
    [10n, -1n, 0n],
    [10n, 5n, 6n],
    [10n, 5n, -1n],
    [2n ** 49n, 1n, 0n],
  ])('error: %s with a fee of %s and a reward of %s', (price, fee, reward) => {
    expect(() => splitterShares(price, fee, reward)).toThrow(RangeError)
  })
})
