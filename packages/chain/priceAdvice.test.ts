import { networks } from '@tollkeeper/sdk/protocol/networks'
import { describe, expect, test } from 'vitest'
import { adviseOnPrice, formatPicoUsd } from './priceAdvice.ts'

/** The gas price is 0.002 gwei, and 1 ETH costs 2,500 USD. */
const prices = { expected: 2_000_000n, dataFee: 0n, usdPerToken: 2_500_000_000n }
const asked = { network: networks.base, prices, schedule: 'tiered', hasTabs: true } as const

describe('adviseOnPrice', () => {
  test('reports the fee, the gas, the break-even prices, and what to do', () => {
    const advice = adviseOnPrice({ ...asked, price: 10_000n })
    expect(advice).toBe(
      'At 0.01 USDC on base, the fee of 0.0005 USDC is less than the gas of a payment that settles alone (0.000712 USD now; ' +
        '0.000430 USD with 100 in a batch). The fee covers the gas at a price of at least 0.01424 USDC if the payment settles alone, or 0.00431 USDC in such a batch. ' +
        'Let buyers use tabs (docs/tabs.md), which share one settlement among many requests, or raise the price. See docs/costs.md',
    )
  })

  test('includes the L1 data fee', () => {
    expect(adviseOnPrice({ ...asked, price: 20_000n })).toBeNull()
    const dataFee = 100_000_000_000n
    expect(adviseOnPrice({ ...asked, price: 20_000n, prices: { ...prices, dataFee } })).toContain(
      '0.00271 USD now',
    )
  })

  test('gives no advice at or above the break-even price, or on a test network', () => {
    expect(adviseOnPrice({ ...asked, price: 14_220n })).toContain('less than the gas')
    expect(adviseOnPrice({ ...asked, price: 14_240n })).toBeNull()
    expect(adviseOnPrice({ ...asked, price: 10_000n, network: networks['base-sepolia'] })).toBeNull()
  })

  test('doesn’t recommend tabs if the gateway has none', () => {
    const advice = adviseOnPrice({ ...asked, price: 10_000n, hasTabs: false })
    expect(advice).toContain('Raise the price, or switch tabs on (TABS).')
  })
})

test.each([
  [711_750_000n, '0.000712'],
  [999_500_000n, '0.00100'],
  [68_649n, '0.0000000686'],
  [7n, '0.00000000000700'],
  [0n, '0.00'],
  [12_345_000_000_000n, '12.35'],
  [1_230_000_000_000n, '1.23'],
  [-211_750_000n, '-0.000212'],
])('formatPicoUsd formats %d picodollars as %s dollars', (pico, text) => {
  expect(formatPicoUsd(pico)).toBe(text)
})
