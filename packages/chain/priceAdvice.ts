import { formatShortUsdc } from '@tollkeeper/sdk/protocol/amount'
import type { Network } from '@tollkeeper/sdk/protocol/networks'
import { breakEvenPrice, type FeeSchedule, splitAnyPrice } from '@tollkeeper/sdk/protocol/tier'
import { gasCostOfPayment, picoUsdPerUnit, type UnitPrices } from './typicalGas.ts'

/** Number of payments in a full batch, at which the count trigger fires. The advice names the gas cost of a payment in such a batch. */
const fullBatch = 100

export type PriceAdviceOptions = {
  /** The price in USDC base units. */
  price: bigint
  network: Pick<Network, 'name' | 'testnet'>
  prices: UnitPrices
  schedule: FeeSchedule
  /** Whether buyers can put the price on a tab. */
  hasTabs: boolean
}

/**
 * Returns a warning if a price's fee doesn't cover the gas of a payment with two signatures that settles alone.
 *
 * @returns null if the fee covers the gas, and on test networks, where gas costs nothing.
 * @example
 * adviseOnPrice({ price: 10_000n, network: networks.base, prices, schedule: 'tiered', hasTabs: true })
 * // 'At 0.01 USDC on base, the fee of 0.0005 USDC is less than the gas of a payment that settles alone (0.000712 USD now; …'
 */
export function adviseOnPrice({
  price,
  network,
  prices,
  schedule,
  hasTabs,
}: PriceAdviceOptions): string | null {
  if (network.testnet) return null
  const { feeAmount } = splitAnyPrice(price, schedule)
  const alone = gasCostOfPayment('two_signatures', 1, prices)
  if (feeAmount * picoUsdPerUnit >= alone) return null
  const shared = gasCostOfPayment('two_signatures', fullBatch, prices)
  const [fromAlone, fromShared] = [alone, shared].map((cost) =>
    formatShortUsdc(breakEvenPrice(cost, schedule)),
  )
  const tabs = hasTabs
    ? 'Let buyers use tabs (docs/tabs.md), which share one settlement among many requests, or raise the price.'
    : 'Raise the price, or switch tabs on (TABS).'
  return (
    `At ${formatShortUsdc(price)} USDC on ${network.name}, the fee of ${formatShortUsdc(feeAmount)} USDC is less than the gas of a payment that ` +
    `settles alone (${formatPicoUsd(alone)} USD now; ${formatPicoUsd(shared)} USD with ${fullBatch} in a batch). The fee covers the gas at ` +
    `a price of at least ${fromAlone} USDC if the payment settles alone, or ${fromShared} USDC in such a batch. ${tabs} See docs/costs.md`
  )
}

const threeDigits = new Intl.NumberFormat('en', {
  minimumSignificantDigits: 3,
  maximumSignificantDigits: 3,
  minimumFractionDigits: 2,
  maximumFractionDigits: 2,
  roundingPriority: 'morePrecision',
  useGrouping: false,
})

/**
 * Formats an amount of 10^-12 USD in dollars, with three significant digits or two decimals, whichever is more precise.
 *
 * @example
 * formatPicoUsd(711_750_000n)
 * // '0.000712'
 */
export function formatPicoUsd(pico: bigint): string {
  return threeDigits.format(exactPicoUsd(pico) as `${number}`)
}

/** Formats an amount of 10^-12 USD in dollars, with all 12 decimals. */
export function exactPicoUsd(pico: bigint): string {
  const text = (pico < 0n ? -pico : pico).toString().padStart(13, '0')
  return `${pico < 0n ? '-' : ''}${text.slice(0, -12)}.${text.slice(-12)}`
}
