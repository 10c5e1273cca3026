import { expect, test } from 'vitest'
import { installPackages } from '../support/installed.ts'
import { runCommand, untilGone } from '../support/processes.ts'

/** Without npm, which costs more than the rest of these. */
const demo = (argument: string) => ['node', 'local/demo.ts', argument]

test('args: --json --payments 0: one JSON object as the last line, and all of it holds', async () => {
  const { bin, folder: cwd } = await installPackages()
  const command = runCommand([bin, 'demo', '--json', '--payments', '0'], {}, { cwd })
  expect(await command.exited, command.output()).toBe(0)
  const result = JSON.parse(command.stdout().split('\n').at(-1) as string)
  // What is left is the payment of high value.
  expect(result).toEqual({
    payments: 1,
    settled: 1,
    batches: 1,
    triggers: { high_value: 1 },
    receiptsVerified: 1,
    reconciled: 1,
    // With the 0.76 USDC of the tab: a tenth is the platform's, of which a tenth is the keeper's.
    providerAmount: '12334000',
    platformAmount: '418400',
    rewardAmount: '7600',
    gasPerPayment: expect.any(Number),
    tab: { providers: 5, requests: 2_000, settled: 2_000, batches: 1, gasPerRequest: expect.any(Number) },
    conserved: true,
    elapsedMs: expect.any(Number),
  })
  expect(result.tab.gasPerRequest * 100).toBeLessThan(result.gasPerPayment)
  await untilGone(command)
})

test('default: 121 payments settle by count, amount and high value, in at most seven batches, and a tab beside them', async () => {
  const command = runCommand(['npm', 'run', 'demo'])
  expect(await command.exited, command.output()).toBe(0)
  const text = command.stdout()
  for (const line of [
    '121 of 121 payments settled',
    "121 receipts verified against the gateway's JWKS",
    "121 receipts reconciled with USDC's own logs",
    '2000 of 2000 requests on the tab settled, audited by their receipts',
    'USDC conserved to the unit',
  ]) {
    expect(text).toContain(`✓ ${line}`)
  }
  for (const trigger of ['count', 'amount', 'high_value'])
    expect(text).toMatch(new RegExp(`^ *\\d +${trigger} `, 'm'))
  expect(Number(text.match(/gas a payment in (\d+) transactions/)?.[1])).toBeLessThanOrEqual(7)
  await untilGone(command)
})

test('args: --help says what it does, and starts nothing', async () => {
  const command = runCommand(demo('--help'))
  expect(await command.exited).toBe(0)
  expect(command.stdout()).toContain('--payments N')
})

test('error: more payments than it makes', async () => {
  const command = runCommand(demo('--payments=10001'))
  expect(await command.exited).toBe(2)
  expect(command.output()).toContain('--payments: expected a whole number from 0 to 10000, got "10001"')
})
