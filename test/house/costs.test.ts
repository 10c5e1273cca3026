import { readFileSync } from 'node:fs'
import { formatPicoUsd } from '@tollkeeper/chain/priceAdvice'
import { gasCostOfPayment, type PaymentKind, typicalBatchGas } from '@tollkeeper/chain/typicalGas'
import { defaultTriggers } from '@tollkeeper/ledger/queue/triggers'
import { formatUsdc, parseUsdc } from '@tollkeeper/sdk/protocol/amount'
import { breakEvenPrice, splitPrice } from '@tollkeeper/sdk/protocol/tier'
import { describe, expect, test } from 'vitest'
import { startLocalChain } from '../../apps/devstack/chain/startLocalChain.ts'
import { createBench } from '../../bench/support/gasBench.ts'
import { createKindMeter } from '../../bench/support/gasKinds.ts'

const text = readFileSync(new URL('../../docs/costs.md', import.meta.url), 'utf8')

test('behavior: docs/costs.md states the keeper’s thresholds', () => {
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

test('behavior: docs/costs.md derives the threshold at each gas price from the cost of a payment', () => {
  const gasOfPayment = 86_000
  const rows = [...text.matchAll(/^\| ([\d.]+) gwei +\| ([\d.]+) USD +\| (\d+) +\| (.*?) +\|$/gm)]
  expect(rows).toHaveLength(4)
  for (const [, gwei, cost, payments, follows = ''] of rows) {
    const usd = (gasOfPayment * Number(gwei) * 2_500) / 1e9
    const affordable = Math.floor(0.02 / usd)
    expect([cost, payments]).toEqual([usd.toFixed(6), String(affordable)])
    expect(follows.includes('lower thresholds hold')).toBe(affordable >= defaultTriggers.count)
    const [, least] = /1 USD if payments average ([\d.]+) USD or more/.exec(follows) ?? []
    // At this price, the affordable number of payments is worth 1 USD or more. At a slightly lower price, it would be worth less.
    if (least !== undefined) {
      expect(Math.ceil(1 / Number(least))).toBeLessThanOrEqual(affordable)
      expect(Math.ceil(1 / (Number(least) - 0.001))).toBeGreaterThan(affordable)
    }
  }
})

describe('the costs in docs/costs.md', () => {
  /** The example's prices: 0.002 gwei, and 2,500 USD per ETH. */
  const prices = { expected: 2_000_000n, dataFee: 0n, usdPerToken: 2_500_000_000n }

  test('equal the costs that the model computes at the prices of the example', () => {
    const names: Record<string, PaymentKind> = {
      'two signatures': 'two_signatures',
      'one signature': 'one_signature',
      'a request on a tab': 'tab',
    }
    const rows = [
      ...text.matchAll(
        /^\| (.*?)(?:, | of )(alone|[\d,]+) ?(?:in a batch|requests)? +\| ([\d,]+) +\| ([\d.]+) +\| ([\d.]+) USDC +\|$/gm,
      ),
    ]
    expect(rows).toHaveLength(9)
    for (const [, name = '', written = '', gas, usd, from] of rows) {
      const kind = names[name] as PaymentKind
      const count = written === 'alone' ? 1 : Number(written.replace(',', ''))
      const [sharing, requests] = kind === 'tab' ? [1, count] : [count, 1]
      const cost = gasCostOfPayment(kind, sharing, prices, requests)
      const expectedGas = (typicalBatchGas(kind, sharing) / BigInt(count)).toLocaleString('en')
      expect([gas, usd, from]).toEqual([
        expectedGas,
        formatPicoUsd(cost),
        formatUsdc(breakEvenPrice(cost)).replace(/\.?0+$/, ''),
      ])
    }
  })

  test('name the fees that are charged', () => {
    const examples = [...text.matchAll(/of ([\d.]+)(?: USDC)?: ([\d.]+)/g)]
    expect(examples).toHaveLength(5)
    for (const [, price = '', fee = ''] of examples)
      expect(splitPrice(parseUsdc(price)).feeAmount).toBe(parseUsdc(fee))
  })

  test('are within 2% of the gas that batches of the real contracts use', async () => {
    await using chain = await startLocalChain({ blockTimeMs: 0 })
    const meter = await createKindMeter(await createBench(chain))
    for (const count of [1, 2, 10, 100, 150]) {
      const used = {
        two_signatures: [await meter.twoSignatures(count), typicalBatchGas('two_signatures', count)],
        one_signature: [await meter.oneSignature(count, false), typicalBatchGas('one_signature', count, 0)],
        swept: [await meter.oneSignature(count, true), typicalBatchGas('one_signature', count, 1)],
        tab: [await meter.tabs(count), typicalBatchGas('tab', count)],
      }
      for (const [kind, [gas, model]] of Object.entries(used))
        expect(Math.abs(Number(gas) / Number(model) - 1), `${count} of ${kind}`).toBeLessThan(0.02)
    }
  })
})
