/**
 * `npm test` and the other tiers of tests: `node tools/runTests.ts <tier> [arguments of Vitest]`. Each tier ends with a line of its
 * counts, `default: 4123 passed, 0 failed, 0 skipped`, and `all` with a total.
 *
 * If TIER_LINES names a file, each tier also appends its line to that file. `node tools/runTests.ts total <names>` prints the lines of the named
 * tiers and their total. .ci/run uses this.
 */
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { existsSync, statSync } from 'node:fs'
import { appendFile, glob, mkdtemp, readFile, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { text } from 'node:stream/consumers'
import {
  add,
  type Counts,
  countOutput,
  formatTier,
  formatTotal,
  none,
  selectArguments,
  sumTiers,
} from './tiers/counts.ts'

const root = join(import.meta.dirname, '..')

const isFile = (path: string) => statSync(join(root, path), { throwIfNoEntry: false })?.isFile() ?? false

type Tier = { summary: string; run: (args: readonly string[]) => Promise<Counts> }

/** Solidity tests of gas: they run on the code as deployed, compare snapshots or try many gas limits. The tier `contracts` runs them. */
const gasTests = ['Gas', 'SplitterGas', 'TabGas']
const sweeps = ['GasGriefing', 'TabGasGriefing']
const toPath = (name: string) => `contracts/test/${name}.t.sol`

/** Number of mutants to try. mutateContract.ts always selects the same mutants, spread evenly over all contracts. */
const mutants = 4

const tiers: Record<string, Tier> = {
  default: {
    summary:
      'unit and integration tests, the contracts’ Solidity tests, one whole stack, one keeper crash, the packed packages',
    async run(args) {
      const { filtered } = selectArguments('default', args, isFile)
      if (filtered) return runVitest('default', args)
      // Vitest's tests spend much of their time waiting, while the compiler only computes, so both run at once. The compiler keeps its normal
      // priority. With a lower priority, it would still be running on one core after Vitest has ended.
      const [solidity, vitest] = await Promise.all([runSolidity(), runVitest('default', args)])
      process.stdout.write(`\n${solidity.output}`)
      return add(solidity.counts, vitest)
    },
  },
  system: {
    summary:
      'whole processes: keepers, networks, MCP, dashboard, crashes (test/crash), chaos (test/chaos), small benches',
    run: (args) => runVitest('system', args),
  },
  compat: {
    summary: 'other people’s programs, runtimes and checkers; installs almost 2 GB of packages into compat/',
    async run(args) {
      process.stdout.write('compat: npm ci in compat/\n')
      const install = ['npm', 'ci', '--prefer-offline', '--no-audit', '--no-fund']
      if ((await show(install, join(root, 'compat'))) !== 0) return { passed: 0, failed: 1, skipped: 0 }
      const types = await runChecks(['tsc --noEmit -p compat'])
      return add(types, await runVitest('compat', args))
    },
  },
  contracts: {
    summary: `coverage, gas snapshots, gas-limit sweeps, generated files, ${mutants} mutants`,
    async run(args) {
      if (args.length > 0) throw new Error('test:contracts takes no arguments')
      // Coverage and the mutants compile into separate folders, so these three groups of checks can run at the same time.
      return add(
        ...(await Promise.all([
          runChecks([
            'node tools/generateAbi.ts --check',
            'npm run gas:check',
            `hardhat test solidity ${sweeps.map(toPath).join(' ')}`,
          ]),
          runChecks(['npm run coverage:contracts']),
          runChecks([`node tools/mutateContract.ts --sample ${mutants}`]),
        ])),
      )
    },
  },
}

const usage = `npm test -- [arguments of Vitest]             ${tiers.default?.summary}
npm run test:system -- [arguments of Vitest]  ${tiers.system?.summary}
npm run test:compat -- [arguments of Vitest]  ${tiers.compat?.summary}
npm run test:contracts                        ${tiers.contracts?.summary}
npm run test:all                              all of these

To run one file, even of another tier, give its path: npm test -- test/e2e/payment.test.ts
Options go to Vitest as they are: npm test -- --reporter=verbose
Repeated and longer runs: npm run test:crash, npm run test:chaos (docs/testing.md).
`

/** Runs a tier, and prints its line even if it throws. @returns the line. */
async function runTier(name: string, args: readonly string[]): Promise<string> {
  let counts: Counts = { passed: 0, failed: 1, skipped: 0 }
  try {
    counts = (await tiers[name]?.run(args)) ?? counts
  } catch (error) {
    console.error(error)
  }
  const line = formatTier(name, counts)
  process.stdout.write(`\n${line}\n`)
  if (process.env.TIER_LINES) await appendFile(process.env.TIER_LINES, `${line}\n`)
  return line
}

/** Runs Vitest on a tier's project. A run that fails without a failed test counts as one failure. */
async function runVitest(tier: string, args: readonly string[]): Promise<Counts> {
  const folder = await mkdtemp(join(tmpdir(), 'tollkeeper-counts-'))
  const file = join(folder, 'counts.json')
  try {
    const { selected } = selectArguments(tier, args, isFile)
    const status = await show(['vitest', 'run', ...selected], root, { TIER_COUNTS: file })
    const counts: Counts = existsSync(file) ? JSON.parse(await readFile(file, 'utf8')) : none
    return status === 0 || counts.failed > 0 ? counts : { ...counts, failed: 1 }
  } finally {
    await rm(folder, { recursive: true, force: true })
  }
}

/** Runs the Solidity tests, except the tests of gas. */
async function runSolidity(): Promise<{ output: string; counts: Counts }> {
  const others = new Set([...gasTests, ...sweeps].map(toPath))
  const paths: string[] = []
  for await (const path of glob('contracts/test/*.t.sol', { cwd: root }))
    if (!others.has(path)) paths.push(path)
  return capture(`hardhat test solidity ${paths.sort().join(' ')}`)
}

/** Runs all commands in order, even after a command fails, and prints each command's output when it ends. */
async function runChecks(commands: readonly string[]): Promise<Counts> {
  let counts = none
  for (const command of commands) {
    const startedAt = Date.now()
    const result = await capture(command)
    const seconds = Math.round((Date.now() - startedAt) / 1_000)
    process.stdout.write(`\n${command} (${seconds} s)\n${result.output}`)
    counts = add(counts, result.counts)
  }
  return counts
}

async function capture(command: string): Promise<{ output: string; counts: Counts }> {
  const child = spawn(`${command} 2>&1`, { cwd: root, shell: true, stdio: ['ignore', 'pipe', 'inherit'] })
  const [output, [status]] = await Promise.all([text(child.stdout), once(child, 'close')])
  return { output, counts: countOutput(output, status === 0) }
}

async function show(
  [program = '', ...args]: readonly string[],
  cwd: string,
  env = {},
): Promise<number | null> {
  const child = spawn(program, args, { cwd, stdio: 'inherit', env: { ...process.env, ...env } })
  return (await once(child, 'close'))[0]
}

/** Prints the lines of these tiers and their total. Sets the exit status to 1 if a test failed. */
function printTotal(text: string, names: readonly string[]): void {
  const { lines, total } = sumTiers(text, names)
  process.stdout.write(`\n${lines.join('\n')}\n${formatTotal(total)}\n`)
  if (total.failed > 0) process.exitCode = 1
}

const [tier = '', ...args] = process.argv.slice(2)
const names = tier === 'all' ? Object.keys(tiers) : [tier]
if (args.includes('--help') || args.includes('-h')) {
  process.stdout.write(usage)
} else if (tier === 'total') {
  printTotal(await readFile(process.env.TIER_LINES ?? '', 'utf8'), args)
} else if (names.some((name) => !(name in tiers)) || (tier === 'all' && args.length > 0)) {
  process.stderr.write(usage)
  process.exitCode = 2
} else {
  const lines: string[] = []
  for (const name of names) lines.push(await runTier(name, args))
  if (tier === 'all') printTotal(lines.join('\n'), names)
  else if (sumTiers(lines.join('\n'), names).total.failed > 0) process.exitCode = 1
}
