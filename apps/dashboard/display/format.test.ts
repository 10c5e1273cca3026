import { afterAll, beforeAll, expect, test, vi } from 'vitest'
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
  writeWhole,
} from './format.ts'

beforeAll(() => vi.stubGlobal('navigator', { languages: ['en-US'] }))
afterAll(() => vi.unstubAllGlobals())

test.each([
  [0n, '0.00', '0.000000'],
  [1n, '0.000001', '0.000001'],
  [50_000n, '0.05', '0.050000'],
  [1_234_500_000n, '1,234.50', '1,234.500000'],
  [2n ** 64n - 1n, '18,446,744,073,709.551615', '18,446,744,073,709.551615'],
])('default: formats %s base units as %s', (amount, short, exact) => {
  expect([writeUsdc(amount), writeExactUsdc(amount)]).toEqual([short, exact])
})

test('default: shows every base unit of a sum that a float would round', () => {
  const rows = [{ usdc: '9007199254.740993' }, { usdc: '0.000001' }]
  expect(writeExactUsdc(sumUsdc(rows, ({ usdc }) => usdc))).toBe('9,007,199,254.740994')
})

test.each([
  [0, 0, '–'],
  [1, 1, '100%'],
  [9_999, 10_000, '99.9%'],
  [0, 3, '0.0%'],
])('default: formats %s of %s as %s', (part, whole, text) => {
  expect(writeShare(part, whole)).toBe(text)
})

test.each([
  ['0.05', '5%'],
  ['0.0345', '3.45%'],
  ['0.07', '7%'],
  ['0.02502', '2.5%'],
])('default: formats the rate %s as %s', (fraction, text) => {
  expect(writeRate(fraction)).toBe(text)
})

test.each([
  [5n, 0n, 0],
  [1n, 3n, 0.3333],
  [4n, 3n, 1],
])('default: returns %s of %s as the fraction %s', (part, whole, share) => {
  expect(shareOf(part, whole)).toBe(share)
})

test.each([
  [-1, '0:00'],
  [400, '0:01'],
  [750_000, '12:30'],
  [3_723_000, '1:02:03'],
  [183_600_000, '2 d 3 h'],
])('default: formats a countdown of %s ms as %s', (ms, text) => {
  expect(writeCountdown(ms)).toBe(text)
})

test.each([
  [1_000, 'just now'],
  [-61_000, '1 min ago'],
  [7_300_000, 'in 2 h'],
  [-260_000_000, '3 d ago'],
])('default: formats a time %s ms from now as %s', (ms, text) => {
  expect(writeDistance(1_000_000, 1_000_000 + ms)).toBe(text)
})

test.each([
  [`0x${'ab'.repeat(20)}`, '0xabababab…abab'],
  ['pay_0f8fad5bd9cb469fa16570867728950e', 'pay_…70867728950e'],
  ['short', 'short'],
])('default: shortens %s', (text, short) => {
  expect(shorten(text)).toBe(short)
})

test.each([
  ['base', 'base', 'base #7'],
  ['base-sepolia', 'base-sepolia (testnet funds)', 'base-sepolia #7 (testnet funds)'],
  ['elsewhere', 'elsewhere', 'elsewhere #7'],
])('default: marks the name of %s if it is a test network', (network, name, batch) => {
  expect([nameNetwork(network), nameBatch(network, 7)]).toEqual([name, batch])
})

test('default: links to an explorer only if the network has one', () => {
  expect(explorerLink('base', 'tx/0xab')).toBe('https://basescan.org/tx/0xab')
  expect(explorerLink('localhost', 'tx/0xab')).toBeUndefined()
  expect(explorerLink('elsewhere', 'tx/0xab')).toBeUndefined()
})

test.each([
  [1, '1 batch'],
  [0, '0 batches'],
  [1_200, '1,200 batches'],
])('args: formats a count of %d with the right plural', (count, text) =>
  expect(countOf(count, 'batch', 'batches')).toBe(text),
)

test.each([
  [0, '0'],
  [1_200, '1,200'],
  [0.5, ''],
])('args: labels whole numbers on an axis of counts, and nothing between them: %d', (count, text) =>
  expect(writeWhole(count)).toBe(text),
)
