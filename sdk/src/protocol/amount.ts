import { ProtocolError } from './errors.ts'

/** USDC has 6 decimals on every network: 1,000,000 base units are 1 USDC. */
const decimals = 6
const unit = 1_000_000n

/** The largest amount that a payload may carry, so that 64 bits hold every amount. */
export const maxAmount = 2n ** 64n - 1n

const decimalPattern = /^(0|[1-9]\d{0,13})(?:\.(\d+))?$/

/**
 * Reads a decimal USDC amount into base units. A JSON number is read by its shortest decimal form.
 *
 * Refuses signs, exponents, leading zeros and more than 6 decimals: nothing is ever rounded silently.
 *
 * @param decimal decimal USDC, such as `'0.05'` or `0.05`.
 * @returns base units: 1,000,000 are 1 USDC.
 * @throws {ProtocolError} `invalid_field`
 * @example
 * import { parseUsdc } from '@tollkeeper/sdk/protocol'
 *
 * console.log(parseUsdc('0.05'))
 * // 50000n
 */
export function parseUsdc(decimal: string | number): bigint {
  // The type keeps no stranger's JSON out.
  const isText = typeof decimal === 'string' || typeof decimal === 'number'
  const match = isText ? decimalPattern.exec(String(decimal)) : null
  if (!match) {
    throw new ProtocolError(
      'invalid_field',
      `Expected a decimal USDC amount like "0.05", got ${quote(decimal)}`,
    )
  }
  const fraction = match[2] ?? ''
  if (fraction.length > decimals) {
    throw new ProtocolError('invalid_field', `USDC has ${decimals} decimals, got ${quote(decimal)}`)
  }
  return BigInt(match[1] ?? '0') * unit + BigInt(fraction.padEnd(decimals, '0'))
}

/**
 * Writes base units as decimal USDC, always with 6 decimals.
 *
 * @param amount base units.
 * @example
 * import { formatUsdc } from '@tollkeeper/sdk/protocol'
 *
 * console.log(formatUsdc(50_000n))
 * // 0.050000
 */
export function formatUsdc(amount: bigint): string {
  const magnitude = amount < 0n ? -amount : amount
  const fraction = (magnitude % unit).toString().padStart(decimals, '0')
  return `${amount < 0n ? '-' : ''}${magnitude / unit}.${fraction}`
}

/** Divides non-negative amounts and rounds up. */
export function ceilDiv(dividend: bigint, divisor: bigint): bigint {
  return (dividend + divisor - 1n) / divisor
}

/** Divides non-negative amounts and rounds down. */
export function floorDiv(dividend: bigint, divisor: bigint): bigint {
  return dividend / divisor
}

/** Returns an amount, or 0 for one below zero. */
export function atLeastZero(amount: bigint): bigint {
  return amount < 0n ? 0n : amount
}

function quote(value: unknown): string {
  return typeof value === 'object' ? 'an object' : JSON.stringify(String(value).slice(0, 80))
}
