import fc from 'fast-check'
import { formatUnits } from 'viem'
import { describe, expect, test } from 'vitest'
import { ceilDiv, floorDiv, formatUsdc, parseUsdc } from './amount.ts'

describe('parseUsdc', () => {
  test('default: converts decimal USDC to base units', () => {
    expect(parseUsdc('0.05')).toBe(50_000n)
  })

  test.each([
    ['0', 0n],
    ['1', 1_000_000n],
    ['0.000001', 1n],
    ['1.500000', 1_500_000n],
    ['99999999999999.999999', 99_999_999_999_999_999_999n],
    [0.005, 5_000n],
    [0.000001, 1n],
    [12, 12_000_000n],
  ])('args: accepts %s', (decimal, amount) => {
    expect(parseUsdc(decimal)).toBe(amount)
  })

  test.each([
    '',
    ' 1',
    '1 ',
    '+1',
    '-1',
    '.5',
    '1.',
    '01',
    '1e3',
    '0x10',
    '1,5',
    '1_000',
    'NaN',
    'Infinity',
    '١',
  ])('error: %j is not an amount', (decimal) => {
    expect(() => parseUsdc(decimal)).toThrow(expect.objectContaining({ code: 'invalid_field' }))
  })

  test.each(['0.0000001', '1.9999999', '1.0000000'])(
    'error: rejects %s, which has too many decimals',
    (decimal) => {
      expect(() => parseUsdc(decimal)).toThrow(/6 decimals/)
    },
  )

  test.each([1e-7, 1e21, Number.NaN, -1, 0.1 + 0.2])('error: rejects the number %s', (decimal) => {
    expect(() => parseUsdc(decimal)).toThrow(expect.objectContaining({ code: 'invalid_field' }))
  })
})

describe('formatUsdc', () => {
  test('default: formats base units with 6 decimals', () => {
    expect(formatUsdc(50_000n)).toBe('0.050000')
  })

  test('args: formats zero and negative amounts', () => {
    expect(formatUsdc(0n)).toBe('0.000000')
    expect(formatUsdc(-1n)).toBe('-0.000001')
  })

  test('behavior: formats amounts that parse back to the same value, and agrees with viem', () => {
    fc.assert(
      fc.property(fc.bigInt(0n, 10n ** 20n - 1n), (amount) => {
        const text = formatUsdc(amount)
        expect(parseUsdc(text)).toBe(amount)
        expect(text.replace(/\.?0+$/, '') || '0').toBe(formatUnits(amount, 6).replace(/\.?0+$/, '') || '0')
      }),
    )
  })
})

test('behavior: ceilDiv rounds the quotient up, and floorDiv rounds it down', () => {
  fc.assert(
    fc.property(fc.bigInt(0n, 2n ** 64n), fc.bigInt(1n, 2n ** 64n), (dividend, divisor) => {
      const low = floorDiv(dividend, divisor)
      const high = ceilDiv(dividend, divisor)
      expect(low * divisor <= dividend && dividend <= high * divisor).toBe(true)
      expect(high - low).toBe(dividend % divisor === 0n ? 0n : 1n)
    }),
  )
})
