import fc from 'fast-check'
import { expect, test } from 'vitest'
import { describeTab, playTabStep, tabRuleCases } from '../../../test/support/tabRule.ts'
import { acceptOnTab, chargedOnTab, chargeOnTab, type GatewayTab, type TabPurchase } from './tabRule.ts'

test.each(tabRuleCases)('behavior: $name', ({ steps }) => {
  let tab: GatewayTab | undefined
  for (const [index, { step, result }] of steps.entries()) {
    const before = tab && describeTab(tab)
    const played = playTabStep(tab, step)
    expect([index, played.result]).toEqual([index, result])
    // The function must not change the tab that it gets.
    expect(tab && describeTab(tab)).toEqual(before)
    tab = played.tab
  }
})

const purchase = (changes: Partial<TabPurchase>): TabPurchase => ({
  terms: {
    chainId: 8453,
    token: `0x${'1'.repeat(40)}`,
    contract: `0x${'2'.repeat(40)}`,
    platform: `0x${'3'.repeat(40)}`,
    rewardShare: 1_000,
    expiry: 1_800_093_600,
  },
  requestHash: String(changes.sequence),
  sequence: 1,
  line: 0,
  known: 0,
  splits: [1n, 2n, 3n],
  amounts: [0n, 0n, 0n],
  price: 1n,
  reserved: 10_000n,
  ...changes,
})

test('behavior: accepts only requests that the newest state and the reserved credit cover', () => {
  const amount = fc.bigInt(0n, 60n)
  const step = fc.record({
    sequence: fc.integer({ min: 1, max: 12 }),
    line: fc.integer({ min: 0, max: 2 }),
    amounts: fc.array(amount, { minLength: 3, maxLength: 3 }),
    price: fc.bigInt(1n, 20n),
    reserved: fc.bigInt(0n, 120n),
    credit: fc.option(fc.bigInt(1n, 10n), { nil: undefined }),
    charge: amount,
  })
  fc.assert(
    fc.property(fc.array(step, { maxLength: 30 }), (steps) => {
      let tab: GatewayTab | undefined
      let credited = 0n
      for (const { charge, credit, ...asked } of steps) {
        const decision = acceptOnTab(tab, purchase({ ...asked, ...(credit && { credit }) }))
        if (decision.verdict === 'accepted') {
          credited += decision.credit
          expect(chargedOnTab(decision.tab)).toBeLessThanOrEqual(decision.tab.reserved)
        }
        tab = decision.tab && chargeOnTab(decision.tab, asked.sequence, charge).tab
        if (!tab) continue
        const { signed } = tab
        for (const [index, line] of tab.lines.entries())
          expect(line.charged).toBeLessThanOrEqual(signed[index] ?? 0n)
        const sum = (amounts: bigint[]) => amounts.reduce((total, one) => total + one, 0n)
        expect(sum(tab.lines.map(({ charged }) => charged))).toBe(
          sum([...tab.requests.values()].map(({ charged }) => charged)) - credited,
        )
      }
    }),
  )
})
