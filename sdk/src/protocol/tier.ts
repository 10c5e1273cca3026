import { ceilDiv, floorDiv } from './amount.ts'
import { ProtocolError } from './errors.ts'

/** The tier of a price (conformance 2.9). */
export type Tier = 'ultra-micro' | 'micropayment' | 'standard' | 'large'

/** `tiered` is the table in conformance 2.9. `flat` is the 98/2 split in conformance 2.9-5. */
export type FeeSchedule = 'tiered' | 'flat'

type TierRow = { tier: Tier; below: bigint | null; basisPoints: bigint; fixed: bigint }

/** Amounts are base units. The fee is `price * basisPoints / 10000`, rounded down, plus `fixed`. */
const tiers: readonly TierRow[] = [
  { tier: 'ultra-micro', below: 10_000n, basisPoints: 1000n, fixed: 0n },
  { tier: 'micropayment', below: 1_000_000n, basisPoints: 500n, fixed: 0n },
  { tier: 'standard', below: 10_000_000n, basisPoints: 300n, fixed: 50_000n },
  { tier: 'large', below: null, basisPoints: 250n, fixed: 50_000n },
]

const flatBasisPoints = 200n

/** The minimum price in base units: 0.005 USDC. No tier exists below it (conformance 2.9-7). A network may require more. */
export const minimumPrice = 5_000n

/** A price and its two parts, in USDC base units. */
export type Split = {
  tier: Tier
  price: bigint
  /** The amount that the provider receives: `price - feeAmount`. */
  providerAmount: bigint
  /** The amount that the platform receives, rounded down. */
  feeAmount: bigint
}

/**
 * Splits a price into the provider's part and the platform's fee (conformance 2.9).
 *
 * @param price USDC base units, at least 5,000.
 * @param schedule default: `tiered`.
 * @returns base units. Both parts add up to the price. The percentage is rounded down, in favor of the provider.
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
      `The minimum price is ${minimumPrice} base units, got ${price}`,
      {
        details: { minimum: minimumPrice.toString(), price: price.toString() },
      },
    )
  }
  return splitAnyPrice(price, schedule)
}

/** Splits a price like {@link splitPrice}, but also accepts prices below the minimum price (1 base unit or more), which are sold only on tabs. */
export function splitAnyPrice(price: bigint, schedule: FeeSchedule = 'tiered'): Split {
  const { tier, basisPoints, fixed } = rowOf(price)
  const feeAmount =
    schedule === 'flat'
      ? floorDiv(price * flatBasisPoints, 10_000n)
      : floorDiv(price * basisPoints, 10_000n) + fixed
  return { tier, price, providerAmount: price - feeAmount, feeAmount }
}

/**
 * Returns the fee as a decimal fraction of the price (conformance 2.5-8): 6 decimals, truncated, without trailing zeros. Returns 0 if the price is 0.
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
 * Returns the percentage of a price that the platform charges on a tab.
 *
 * @returns basis points. Undefined if the fee has a fixed part, because such a price is never bought on a tab.
 */
export function tabPercentage(price: bigint, schedule: FeeSchedule): bigint | undefined {
  if (schedule === 'flat') return flatBasisPoints
  const { basisPoints, fixed } = rowOf(price)
  return fixed === 0n ? basisPoints : undefined
}

/**
 * Returns the percentage from which a fee was calculated, if the fee has no fixed part. All prices with the same percentage share one splitter.
 *
 * @returns basis points. Undefined if the fee has a fixed part, or doesn't follow our schedule.
 */
export function percentageOf(price: bigint, feeAmount: bigint): bigint | undefined {
  const { basisPoints, fixed } = rowOf(price)
  const percentages = fixed === 0n ? [basisPoints, flatBasisPoints] : [flatBasisPoints]
  return feeAmount > 0n ? percentages.find((one) => floorDiv(price * one, 10_000n) === feeAmount) : undefined
}

/**
 * Finds the lowest price such that the fee covers a cost at this price and at all higher prices. The fee may also cover the cost at some lower
 * prices, because the percentage drops where a new tier begins.
 *
 * @param cost the cost in millionths of a USDC base unit.
 * @returns USDC base units, at least 1. For a cost of 0.00043 USD, the result is 0.0043 USDC, whose fee is 10%.
 * @example
 * import { breakEvenPrice } from '@tollkeeper/sdk/protocol/tier'
 *
 * console.log(breakEvenPrice(430_000_000n))
 * // 4300n
 */
export function breakEvenPrice(cost: bigint, schedule: FeeSchedule = 'tiered'): bigint {
  const units = ceilDiv(cost, 1_000_000n)
  const rows: readonly Omit<TierRow, 'tier'>[] =
    schedule === 'flat' ? [{ below: null, basisPoints: flatBasisPoints, fixed: 0n }] : tiers
  let least = 1n
  for (const [index, { below, basisPoints, fixed }] of rows.entries()) {
    const start = rows[index - 1]?.below ?? 1n
    // The fee is rounded down, so it reaches `units` only at this price.
    const covers = units > fixed ? ceilDiv((units - fixed) * 10_000n, basisPoints) : start
    if (below !== null && covers >= below) least = below
    else if (covers > start) least = covers > least ? covers : least
  }
  return least
}

function rowOf(price: bigint): TierRow {
  const row = tiers.find(({ below }) => below === null || price < below)
  if (!row) throw new Error('The last tier must be open')
  return row
}
