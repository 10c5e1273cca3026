import { encodeSplit } from '@tollkeeper/sdk/protocol/splitter'
import { describe, expect, test } from 'vitest'
import { seedPlatform } from '../../../test/support/seedPayments.ts'
import { randomHex } from '../../../test/support/usdc.ts'
import { type BatchItem, feeOfItem, type ItemHalf, type ItemTab, rewardOf, sharedFee } from './items.ts'

function halfOf(value: bigint): ItemHalf {
  const authorization = {
    from: randomHex(20),
    to: randomHex(20),
    value,
    validAfter: 0n,
    validBefore: 2n ** 39n,
    nonce: randomHex(32),
    signature: randomHex(65),
  }
  return { authorization, state: 'open' }
}

const itemOf = (change: Partial<BatchItem> = {}): BatchItem => ({
  position: 0,
  paymentId: 'pay_1',
  provider: halfOf(100_000n),
  fee: null,
  ...change,
})

describe('the platform’s part of an item', () => {
  test('default: equals the fee half, or 0 if there is none', () => {
    expect(feeOfItem(itemOf({ fee: halfOf(500n) }))).toBe(500n)
    expect(feeOfItem(itemOf())).toBe(0n)
  })

  test('behavior: equals the platform’s share of a payment to a splitter', () => {
    const splitter = {
      provider: randomHex(20),
      platform: seedPlatform,
      providerShare: 19n,
      platformShare: 1n,
    }
    expect(sharedFee(itemOf({ splitter }))).toBe(5_000n)
    expect(feeOfItem(itemOf({ splitter }))).toBe(5_000n)
  })

  describe('the platform’s part of a tab', () => {
    const split = () => encodeSplit({ provider: randomHex(20), providerShare: 9n, platformShare: 1n })
    const tabOf = (...amounts: bigint[]): ItemTab => ({
      sequence: 1,
      expiry: 2_000_000_000,
      rewardShare: 2_000,
      lines: amounts.map((amount) => ({ split: split(), amount })),
    })

    test('default: excludes the reward, so that nothing counts twice', () => {
      const tab = tabOf(50_000n, 50_000n)
      expect([sharedFee(itemOf({ tab })), rewardOf({ tab })]).toEqual([8_000n, 2_000n])
      expect(feeOfItem(itemOf({ tab }))).toBe(8_000n)
    })

    test('behavior: rounds down for each line, as the contract does', () => {
      const tab = tabOf(19n, 19n)
      expect(sharedFee(itemOf({ tab })) + rewardOf({ tab })).toBe(2n)
    })

    test('behavior: rounds the reward down', () => {
      expect(rewardOf({ tab: tabOf(49n) })).toBe(0n)
      expect(rewardOf({ tab: tabOf(50n) })).toBe(1n)
    })
  })
})

test('default: returns no reward for an item without a tab', () => {
  expect(rewardOf(itemOf({ fee: halfOf(500n) }))).toBe(0n)
})
