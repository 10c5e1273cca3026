import { methodsOfSellers } from '@tollkeeper/ledger/discovery/bazaar'
import { type Command, Option } from 'commander'
import { CliError, exitStatus } from '../terminal/cliError.ts'
import { httpUrl, type JsonFlag, parsedOption } from '../terminal/options.ts'
import { paint, printable } from '../terminal/output.ts'
import type { Check } from './check.ts'
import type { SellerFlags } from './seller.ts'

export function addDoctorCommand(program: Command): void {
  program
    .command('doctor')
    .summary('check the setup, and print what to fix')
    .description(
      `Checks what the environment configures: each RPC and its chain id, USDC's EIP-712 domain, the contracts' code, the
price feed, the database (migrations, disk, vacuum, sessions, backups), how far the index is behind the chain, the budget of tabs, this host's
clock, PUBLIC_URL as buyers reach it, the receipt keys, and the gas of the keeper's wallets. Changes nothing, and waits at most a few seconds for each response. Exits with 1 if something must be fixed. Run it twice: with the environment of the api, and with that of the keeper.

With --seller, it checks any seller's URL instead, needs no environment, and prints whether a catalog would list the URL. Nothing is paid.`,
    )
    .option('--json', 'print the checks as JSON')
    .addOption(parsedOption('--seller <url>', 'check this URL of a seller instead', httpUrl))
    .addOption(
      new Option('--method <method>', 'with --seller: the method by which it is sold (default: GET)').choices(
        methodsOfSellers,
      ),
    )
    .option('--gateway <url>', 'with --seller: also ask this gateway what its catalog has')
    .addOption(
      new Option(
        '--api-key <key>',
        'with --gateway: also show what this provider registered and is not listed (default: the key of `tollkeeper login`)',
      ).env('TOLLKEEPER_API_KEY'),
    )
    .addHelpText(
      'after',
      `
Example:
  $ tollkeeper --env .env doctor
  $ NETWORKS=base RPC_URL_BASE=https://… tollkeeper doctor --json
  $ tollkeeper doctor --seller https://api.example/forecast --gateway https://gateway.example`,
    )
    .action(async ({ json, seller, ...flags }: DoctorFlags) => {
      if (seller !== undefined) {
        await lookAtSeller({ ...flags, seller }, json)
        return
      }
      if (flags.method !== undefined || flags.gateway !== undefined)
        throw new CliError('invalid_flags', '--seller: required with --method and --gateway')
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

type DoctorFlags = Partial<SellerFlags> & JsonFlag

async function lookAtSeller(flags: SellerFlags, json = false): Promise<void> {
  const { describeSeller, examineSeller, judgeListable } = await import('./seller.ts')
  const examined = await examineSeller(flags, process.env)
  const checks = [...describeSeller(examined)]
  const isWell = checks.every(({ status }) => status !== 'fail')
  if (json) process.stdout.write(`${JSON.stringify({ well: isWell, ...examined }, null, 2)}\n`)
  else {
    for (const check of checks) process.stdout.write(`${describe(check)}\n`)
    process.stdout.write(`\n${paint(examined.isListable ? 'green' : 'red', judgeListable(examined))}\n`)
  }
  process.exitCode = isWell ? exitStatus.ok : exitStatus.unwell
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
  return advice === undefined ? line : `${line}\n  ${' '.repeat(28)} → ${printable(advice)}`
}

function summarise(checks: readonly Check[], failures: number): string {
  const skips = checks.filter(({ status }) => status === 'skip').length
  const made = checks.length - skips
  const skipped = skips > 0 ? `, ${skips} more skipped` : ''
  if (failures > 0) return paint('red', `${failures} of ${made} must be fixed${skipped}`)
  const warnings = checks.filter(({ status }) => status === 'warn').length
  return paint(
    'green',
    warnings > 0
      ? `Everything works, with ${warnings} warning${warnings === 1 ? '' : 's'}`
      : 'Everything works',
  )
}
