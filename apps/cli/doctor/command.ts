import type { Command } from 'commander'
import { exitStatus } from '../terminal/cliError.ts'
import { paint, printable } from '../terminal/output.ts'
import type { Check } from './check.ts'

export function addDoctorCommand(program: Command): void {
  program
    .command('doctor')
    .summary('checks that everything is in place, and says what to do')
    .description(
      `Checks what the environment names: each RPC and its chain id, USDC's EIP-712 domain, the contract's code, the
price feed, the database and its migrations, how far the index is behind, and the gas of the keeper's wallets. Changes nothing. Exits
with 1 if something must be put right.`,
    )
    .option('--json', 'print the checks as JSON')
    .addHelpText(
      'after',
      `
Example:
  $ tollkeeper --env .env doctor
  $ NETWORKS=base RPC_URL_BASE=https://… tollkeeper doctor --json`,
    )
    .action(async ({ json }: { json?: boolean }) => {
      const { examine } = await import('./examine.ts')
      const checks: Check[] = []
      for await (const check of examine(process.env)) {
        checks.push(check)
        if (!json) process.stdout.write(`${describe(check)}\n`)
      }
      const failures = checks.filter(({ status }) => status === 'fail').length
      if (json) process.stdout.write(`${JSON.stringify({ well: failures === 0, checks }, null, 2)}\n`)
      else process.stdout.write(`\n${summarise(checks, failures)}\n`)
      process.exitCode = failures === 0 ? exitStatus.ok : exitStatus.unwell
    })
}

const marks = {
  ok: { mark: '✓', colour: 'green' },
  warn: { mark: '!', colour: 'yellow' },
  fail: { mark: '✗', colour: 'red' },
  skip: { mark: '-', colour: 'gray' },
} as const

function describe({ status, name, found, advice }: Check): string {
  const { mark, colour } = marks[status]
  const line = `${paint(colour, mark)} ${name.padEnd(28)} ${printable(found)}`
  return advice === undefined ? line : `${line}\n  ${' '.repeat(28)} → ${advice}`
}

function summarise(checks: readonly Check[], failures: number): string {
  const skips = checks.filter(({ status }) => status === 'skip').length
  const made = checks.length - skips
  const skipped = skips > 0 ? `, ${skips} more skipped` : ''
  if (failures > 0) return paint('red', `${failures} of ${made} must be put right${skipped}`)
  const warnings = checks.filter(({ status }) => status === 'warn').length
  return paint('green', warnings > 0 ? `All is in place, ${warnings} to look at` : 'All is in place')
}
