import { expect, test } from 'vitest'
import {
  countOf,
  explorerLink,
  nameBatch,
  nameNetwork,
  shareOf,
  shorten,
  sumUsdc,
  writeCountdown,
  writeDistance,
  writeExactUsdc,
  writeRate,
  writeShare,
  writeUsdc,
} from './format.ts'

test.each([
  [0n, '0.00', '0.000000'],
  [1n, '0.000001', '0.000001'],
  [50_000n, '0.05', '0.050000'],
  [1_234_500_000n, '1,234.50', '1,234.500000'],
  [2n ** 64n - 1n, '18,446,744,073,709.551615', '18,446,744,073,709.551615'],
])('default: %s base units are written as %s', (amount, short, exact) => {
  expect([writeUsdc(amount), writeExactUsdc(amount)]).toEqual([short, exact])
})

test('default: sums keep every unit where a float would not', () => {
  const rows = [{ usdc: '9007199254.740993' }, { usdc: '0.000001' }]
  expect(writeExactUsdc(sumUsdc(rows, ({ usdc }) => usdc))).toBe('9,007,199,254.740994')
})

test.each([
  [0, 0, '–'],
  [1, 1, '100 %'],
  [9_999, 10_000, '99.9 %'],
  [0, 3, '0.0 %'],
])('default: %s of %s is %s', (part, whole, text) => {
  expect(writeShare(part, whole)).toBe(text)
})

test.each([
  ['0.05', '5 %'],
  ['0.0345', '3.45 %'],
  ['0.07', '7 %'],
  ['0.02502', '2.5 %'],
])('default: the rate %s is %s', (fraction, text) => {
  expect(writeRate(fraction)).toBe(text)
})

test.each([
  [5n, 0n, 0],
  [1n, 3n, 0.3333],
  [4n, 3n, 1],
])('default: the length of %s of %s', (part, whole, share) => {
  expect(shareOf(part, whole)).toBe(share)
})

test.each([
  [-1, '0:00'],
  [400, '0:01'],
  [750_000, '12:30'],
  [3_723_000, '1:02:03'],
  [183_600_000, '2 d 3 h'],
])('default: %s ms are counted down as %s', (ms, text) => {
  expect(writeCountdown(ms)).toBe(text)
})

test.each([
  [1_000, 'just now'],
  [-61_000, '1 min ago'],
  [7_300_000, 'in 2 h'],
  [-260_000_000, '3 d ago'],
])('default: %s ms from now is %s', (ms, text) => {
  expect(writeDistance(1_000_000, 1_000_000 + ms)).toBe(text)
})

test.each([
  [`0x${'ab'.repeat(20)}`, '0xabababab…abab'],
  ['pay_0f8fad5bd9cb469fa16570867728950e', 'pay_…70867728950e'],
  ['short', 'short'],
])('default: %s is shortened', (text, short) => {
  expect(shorten(text)).toBe(short)
})

test.each([
  ['base', 'base', 'base #7'],
  ['base-sepolia', 'base-sepolia (test money)', 'base-sepolia #7 (test money)'],
  ['elsewhere', 'elsewhere', 'elsewhere #7'],
])('default: %s is named with whether its money is worth nothing', (network, name, batch) => {
  expect([nameNetwork(network), nameBatch(network, 7)]).toEqual([name, batch])
})

test('default: an explorer only where the network has one', () => {
  expect(explorerLink('base', 'tx/0xab')).toBe('https://basescan.org/tx/0xab')
  expect(explorerLink('localhost', 'tx/0xab')).toBeUndefined()
  expect(explorerLink('elsewhere', 'tx/0xab')).toBeUndefined()
})

test.each([
  [1, '1 batch'],
  [0, '0 batches'],
  [1_200, '1,200 batches'],
])('args: %d of something', (count, text) => expect(countOf(count, 'batch', 'batches')).toBe(text))
