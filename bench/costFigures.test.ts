import { readFileSync } from 'node:fs'
import { expect, test } from 'vitest'
import { options, run } from './cost.ts'

const text = readFileSync(new URL('../docs/costs.md', import.meta.url), 'utf8')

/** Returns the cells of a row in the docs. */
function cells(name: string): number[] {
  const row = text.split('\n').find((line) => line.startsWith(`| ${name} `))
  if (row === undefined) throw new Error(`docs/costs.md has no row ${name}`)
  return row.split('|').slice(2, -1).map(Number)
}

test('docs/costs.md states the figures that the bench computes for each number of payments', async () => {
  const { perDay } = await run(options, () => {})
  const rows = Object.values(perDay)
  const figures = {
    'two signatures': rows.map(({ usdPerPayment }) => usdPerPayment.twoSignatures),
    'one signature': rows.map(({ usdPerPayment }) => usdPerPayment.oneSignature),
    'a request on a tab of 20': rows.map(({ usdPerPayment }) => usdPerPayment.tab),
    'one transaction for each payment': rows.map(({ usdPerPayment }) => usdPerPayment.oneTransactionEach),
    "a hosted facilitator's list price": rows.map(({ usdPerPayment }) => usdPerPayment.hostedListPrice),
    'payments in a batch, two signatures': rows.map(({ perBatch }) => perBatch.twoSignatures),
    'minutes from payment to batch, on average': rows.map(({ minutesWaited }) => minutesWaited.twoSignatures),
  }
  for (const [name, computed] of Object.entries(figures)) {
    const written = cells(name)
    expect(written).toHaveLength(computed.length)
    // Signatures differ in each run. So the number of zero bytes in the calldata differs, and with it the gas.
    for (const [index, value] of computed.entries())
      expect(Math.abs((written[index] as number) - value), `${name} ${index}`).toBeLessThanOrEqual(
        Math.max(value * 0.02, 0.000001),
      )
  }
})
