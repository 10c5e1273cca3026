import { ProtocolError } from './errors.ts'

/** USDC has 6 decimals on every network: 1,000,000 base units are 1 USDC. */
const decimals = 6
const unit = 1_000_000n

/** The largest amount in a payload. Every amount fits into 64 bits. */
export const maxAmount = 2n ** 64n - 1n

const decimalPattern = /^(0|[1-9]\d{0,13})(?:\.(\d+))?$/

/**
 * Converts a decimal USDC amount to base units. A JSON number is converted from its shortest decimal form.
 *
 * Rejects signs, exponents, leading zeros and more than 6 decimals, so that no amount is rounded silently.
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
  // The parameter's type doesn't protect against untrusted JSON.
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
 * Converts an amount as a person writes it, like {@link parseUsdc}, with or without a dollar sign. One USDC counts as one dollar.
 *
 * @param amount an amount such as `'$0.05'`, `'0.05'` or `0.05`.
 * @returns base units: 1,000,000 are 1 USDC.
 * @throws {ProtocolError} `invalid_field`
 * @example
 * import { parseDollars } from '@tollkeeper/sdk/protocol'
 *
 * console.log(parseDollars('$0.05'), parseDollars('0.05'))
 * // 50000n 50000n
 */
export function parseDollars(amount: string | number): bigint {
  return parseUsdc(typeof amount === 'string' ? amount.replace(/^\$/, '') : amount)
}

/**
 * Formats base units as decimal USDC, always with 6 decimals.
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

/**
 * Formats base units like {@link formatUsdc}, but without trailing zeros: 50,000 base units become `0.05`, and a million become `1`.
 */
export function formatShortUsdc(amount: bigint): string {
  return formatUsdc(amount).replace(/\.?0+$/, '')
}

/** Divides non-negative amounts and rounds up. */
export function ceilDiv(dividend: bigint, divisor: bigint): bigint {
  return (dividend + divisor - 1n) / divisor
}

/** Divides non-negative amounts and rounds down. */
export function floorDiv(dividend: bigint, divisor: bigint): bigint {
  return dividend / divisor
}

/** Returns an amount, or 0 if it is negative. */
export function atLeastZero(amount: bigint): bigint {
  return amount < 0n ? 0n : amount
}

function quote(value: unknown): string {
  return typeof value === 'object' ? 'an object' : JSON.stringify(String(value).slice(0, 80))
}
