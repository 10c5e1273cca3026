import { expect, test } from 'vitest'
import { runCommand } from '../test/support/processes.ts'

test('every mutant applies to the current code', async () => {
  const { exited, output, stdout } = runCommand(['node', 'tools/mutate.ts', '--list'])
  expect(await exited, output()).toBe(0)
  expect(stdout()).toContain('ledger-more: a small tab is closed (packages/ledger/tabs/closeTabs.ts)')
})
