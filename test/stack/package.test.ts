import { beforeAll, expect, test } from 'vitest'
import { type Installed, installPackages } from '../support/installed.ts'
import { runCommand, untilGone } from '../support/processes.ts'

// Both packages as their users get them: built, packed, and installed by npm in an empty folder.

let installed: Installed
beforeAll(async () => {
  installed = await installPackages()
}, 900_000)

/** Runs `tollkeeper …` in the empty folder, without variables that a developer may have set for a checkout. */
async function tollkeeper(...args: string[]) {
  const unset = { NETWORKS: undefined, DATABASE_URL: undefined }
  const command = runCommand([installed.bin, ...args], unset, { cwd: installed.folder })
  const status = await command.exited
  await untilGone(command)
  return { status, stdout: command.stdout(), output: command.output() }
}

test('default: the installed demo settles payments and a tab, and ends', async () => {
  const { status, stdout, output } = await tollkeeper('demo', '--payments', '20', '--json')
  expect(status, output).toBe(0)
  expect(JSON.parse(stdout)).toMatchObject({
    payments: 21,
    audit: { reconciled: true, receipts: 2_021, settled: 2_021 },
    conserved: true,
  })
  expect(output).toContain('✓ USDC conserved to the unit')
})

test('default: the installed doctor names what is missing', async () => {
  const { status, stdout } = await tollkeeper('doctor')
  expect(status).toBe(1)
  expect(stdout).toMatch(/✗ configuration +NETWORKS: expected/)
})
