import { expect, test } from 'vitest'
import { installPackages } from '../support/installed.ts'
import { runCommand, untilGone } from '../support/processes.ts'

/** Runs the demo without npm, because npm would take longer than everything else in these tests. */
const demo = (argument: string) => ['node', 'apps/devstack/demo.ts', argument]

test('args: the demo settles 121 payments (triggered by count, amount and high value) and a tab; with --json, it prints the audit and one JSON object', async () => {
  const { bin, folder: cwd } = await installPackages()
  const command = runCommand([bin, 'demo', '--json'], {}, { cwd })
  expect(await command.exited, command.output()).toBe(0)
  const result = JSON.parse(command.stdout())
  expect(result).toEqual({
    payments: 121,
    batches: expect.any(Number),
    triggers: {
      count: expect.any(Number),
      amount: expect.any(Number),
      high_value: 1,
    },
    gasPerPayment: expect.any(Number),
    tab: { providers: 5, requests: 2_000, batches: 1, gasPerRequest: expect.any(Number) },
    audit: { reconciled: true, receipts: 2_121, settled: 2_121 },
    conserved: true,
    // The fees are 10% of 100 × 0.005 USDC, 5% of 20 × 0.06 USDC, 0.05 USDC and 2.5% of 12 USDC, and 10% of the tab's 0.76 USDC. The keeper gets a
    // tenth of the tab's fee, and the platform gets the rest.
    providerAmount: '13924000',
    platformAmount: '528400',
    rewardAmount: '7600',
    elapsedMs: expect.any(Number),
  })
  expect(result.batches).toBeLessThanOrEqual(7)
  expect(result.tab.gasPerRequest * 100).toBeLessThan(result.gasPerPayment)
  const output = command.output()
  expect(output).toContain('✓ 2121 of 2121 receipts reconcile with the chain')
  expect(output).toContain('✓ USDC conserved to the unit: buyers spent 14.460000 USDC')
  // The output has the form of `tollkeeper audit`.
  expect(output).toMatch(/^Reconciled: 2121 settled\.$/m)
  expect(output).toMatch(/Receipts: 2121 settled; tab lines: 0; read up to localhost block \d+/)
  await untilGone(command)
})

test('args: --help prints the usage and starts nothing', async () => {
  const command = runCommand(demo('--help'))
  expect(await command.exited).toBe(0)
  expect(command.stdout()).toContain('--payments N')
})

test('error: rejects more payments than the demo can make', async () => {
  const command = runCommand(demo('--payments=10001'))
  expect(await command.exited).toBe(2)
  expect(command.output()).toContain('--payments: expected a whole number from 0 to 10000, got "10001"')
})
