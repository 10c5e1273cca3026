import { readFileSync } from 'node:fs'
import { defaultTriggers } from '@tollkeeper/ledger/queue/triggers'
import { formatUsdc } from '@tollkeeper/sdk/protocol/amount'
import { expect, test } from 'vitest'

const text = readFileSync(new URL('../../docs/costs.md', import.meta.url), 'utf8')

test('behavior: the thresholds of docs/costs.md are those of the keeper', () => {
  const { amount, count, raisedAmount, raisedCount, highValue, timeMs, raisedAboveCost } = defaultTriggers
  const usd = (units: bigint) => `${Number(units) / 1e6} USD`
  const cells = (name: string) =>
    text
      .split('\n')
      .find((line) => line.startsWith(`| ${name}`))
      ?.split('|')
      .slice(2, 4)
      .map((cell) => cell.trim())
  expect(cells('amount')).toEqual([usd(amount), usd(raisedAmount)])
  expect(cells('count')).toEqual([`${count} payments`, `${raisedCount} payments`])
  expect(cells('time')).toEqual(Array(2).fill(`${timeMs / 3_600_000} hour`))
  expect(cells('high value')).toEqual(Array(2).fill(`a payment of ${usd(highValue)}`))
  expect(text).toContain(`more than ${formatUsdc(raisedAboveCost).replace(/0+$/, '')} USD of gas`)
})

test('behavior: which threshold holds at which price of gas is computed from the cost of a payment', () => {
  const gasOfPayment = 86_000
  const rows = [...text.matchAll(/^\| ([\d.]+) gwei +\| ([\d.]+) USD +\| (\d+) +\| (.*?) +\|$/gm)]
  expect(rows).toHaveLength(4)
  for (const [, gwei, cost, payments, follows = ''] of rows) {
    const usd = (gasOfPayment * Number(gwei) * 2_500) / 1e9
    const affordable = Math.floor(0.02 / usd)
    expect([cost, payments]).toEqual([usd.toFixed(6), String(affordable)])
    expect(follows.includes('lower thresholds hold')).toBe(affordable >= defaultTriggers.count)
    const [, least] = /1 USD from ([\d.]+) USD a payment/.exec(follows) ?? []
    // So many payments of that price reach 1 USD, and no fewer would be enough to be expensive.
    if (least !== undefined) {
      expect(Math.ceil(1 / Number(least))).toBeLessThanOrEqual(affordable)
      expect(Math.ceil(1 / (Number(least) - 0.001))).toBeGreaterThan(affordable)
    }
  }
})
