import { floorDiv } from './amount.ts'
import { ProtocolError } from './errors.ts'

/** The size class of a price (conformance 2.9). */
export type Tier = 'ultra-micro' | 'micropayment' | 'standard' | 'large'

/** `tiered` is the table of conformance 2.9; `flat` is the 98/2 split of conformance 2.9-5. */
export type FeeSchedule = 'tiered' | 'flat'

type TierRow = { tier: Tier; below: bigint | null; basisPoints: bigint; fixed: bigint }

/** Base units. The fee is `price * basisPoints / 10000`, rounded down, plus `fixed`. */
const tiers: readonly TierRow[] = [
  { tier: 'ultra-micro', below: 10_000n, basisPoints: 1000n, fixed: 0n },
  { tier: 'micropayment', below: 1_000_000n, basisPoints: 500n, fixed: 0n },
  { tier: 'standard', below: 10_000_000n, basisPoints: 300n, fixed: 50_000n },
  { tier: 'large', below: null, basisPoints: 250n, fixed: 50_000n },
]

const flatBasisPoints = 200n

/** The lowest price: 0.005 USDC, in base units. There is no tier below it (conformance 2.9-7). A network may ask for more. */
export const minimumPrice = 5_000n

/** A price and its two parts, in USDC base units. */
export type Split = {
  tier: Tier
  price: bigint
  /** What the provider receives: `price - feeAmount`. */
  providerAmount: bigint
  /** What the platform receives, rounded down. */
  feeAmount: bigint
}

/**
 * Splits a price into the provider's part and the platform's fee (conformance 2.9).
 *
 * @param price USDC base units, at least 5,000.
 * @param schedule default: `tiered`.
 * @returns base units; both parts sum to the price, and the percentage in the fee is rounded down, for the provider.
 * @throws {ProtocolError} `price_below_minimum` below 5,000 (0.005 USDC).
 * @example
 * import { splitPrice } from '@tollkeeper/sdk/protocol'
 *
 * console.log(splitPrice(50_000n))
 * // { tier: 'micropayment', price: 50000n, providerAmount: 47500n, feeAmount: 2500n }
 */
export function splitPrice(price: bigint, schedule: FeeSchedule = 'tiered'): Split {
  if (price < minimumPrice) {
    throw new ProtocolError(
      'price_below_minimum',
      `The least price is ${minimumPrice} base units, got ${price}`,
      {
        details: { minimum: minimumPrice.toString(), price: price.toString() },
      },
    )
  }
  return splitAnyPrice(price, schedule)
}

/** As {@link splitPrice}, for prices down to one base unit: those below the least price are bought on tabs. */
export function splitAnyPrice(price: bigint, schedule: FeeSchedule = 'tiered'): Split {
  const { tier, basisPoints, fixed } = rowOf(price)
  const feeAmount =
    schedule === 'flat'
      ? floorDiv(price * flatBasisPoints, 10_000n)
      : floorDiv(price * basisPoints, 10_000n) + fixed
  return { tier, price, providerAmount: price - feeAmount, feeAmount }
}

/**
 * Returns the fee as a decimal fraction of the price (conformance 2.5-8): 6 decimals, truncated, no trailing zeros; 0 of nothing.
 *
 * @param price USDC base units.
 * @param feeAmount USDC base units.
 * @example
 * import { effectiveRate } from '@tollkeeper/sdk/protocol'
 *
 * console.log(effectiveRate(50_000n, 2_500n))
 * // 0.05
 */
export function effectiveRate(price: bigint, feeAmount: bigint): string {
  const millionths = price === 0n ? 0n : floorDiv(feeAmount * 1_000_000n, price)
  const fraction = (millionths % 1_000_000n).toString().padStart(6, '0').replace(/0+$/, '')
  const whole = (millionths / 1_000_000n).toString()
  return fraction === '' ? whole : `${whole}.${fraction}`
}

/**
 * Finds the percentage that the platform takes of a price on a tab.
 *
 * @returns basis points; undefined for a price whose fee has a fixed part: it is never bought on a tab.
 */
export function tabPercentage(price: bigint, schedule: FeeSchedule): bigint | undefined {
  if (schedule === 'flat') return flatBasisPoints
  const { basisPoints, fixed } = rowOf(price)
  return fixed === 0n ? basisPoints : undefined
}

/**
 * Finds the percentage that a fee is, rounded down, where it is nothing else: then all prices with it share one splitter.
 *
 * @returns basis points; undefined for a fee with a fixed part, or one that is no fee of ours.
 */
export function percentageOf(price: bigint, feeAmount: bigint): bigint | undefined {
  const { basisPoints, fixed } = rowOf(price)
  const percentages = fixed === 0n ? [basisPoints, flatBasisPoints] : [flatBasisPoints]
  return feeAmount > 0n ? percentages.find((one) => floorDiv(price * one, 10_000n) === feeAmount) : undefined
}

function rowOf(price: bigint): TierRow {
  const row = tiers.find(({ below }) => below === null || price < below)
  if (!row) throw new Error('The last tier must be open')
  return row
}
