import type { Parser } from '@tollkeeper/runtime/parsers'

/** Parses decimal gwei into wei. */
export const gwei: Parser<bigint> = {
  expected: 'decimal gwei, such as 0.002',
  parse(text) {
    const [, whole, fraction = ''] = /^(\d{1,9})(?:\.(\d{1,9}))?$/.exec(text) ?? []
    return whole === undefined ? undefined : BigInt(whole) * 1_000_000_000n + BigInt(fraction.padEnd(9, '0'))
  },
}

/** Formats wei as gwei without zeros at the end. */
export function formatGwei(wei: bigint): string {
  const fraction = (wei % 1_000_000_000n).toString().padStart(9, '0').replace(/0+$/, '')
  return `${wei / 1_000_000_000n}${fraction === '' ? '' : `.${fraction}`}`
}
