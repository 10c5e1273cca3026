/**
 * `npm run coverage:contracts`: runs the Solidity tests with Hardhat's coverage and fails if less than 99%
 * of a contract's lines or statements are covered. Hardhat 3.18 doesn't report branches; mutateContract.ts covers them.
 */
import { spawnSync } from 'node:child_process'
import { join } from 'node:path'
import { stripVTControlCharacters } from 'node:util'
import { coverageArtifacts } from '../hardhat.config.ts'

const least = 99
const root = join(import.meta.dirname, '..')

// Leaves out the tests of gas, because instrumented contracts use more gas.
const { stdout: output, status } = spawnSync(
  'hardhat',
  [
    ...['--config', join(import.meta.dirname, 'coverageConfig.ts')],
    ...['test', 'solidity', '--coverage', '--grep-exclude', 'test_gas_|test_griefing_'],
  ],
  {
    cwd: root,
    env: { ...process.env, CONTRACT_ARTIFACTS: coverageArtifacts },
    encoding: 'utf8',
    stdio: ['ignore', 'pipe', 'inherit'],
  },
)
console.log(output)
if (status !== 0) process.exit(1)

const covered = new Map<string, { lines: number; statements: number; uncovered: string }>()
for (const line of stripVTControlCharacters(output).split('\n')) {
  const row = /^║ (contracts\/\S+\.sol)\s+│ ([\d.]+)\s+│ ([\d.]+)\s+│ (.+?)\s+║$/.exec(line)
  if (row === null) continue
  const [, path = '', lines, statements, uncovered = ''] = row
  covered.set(path, { lines: Number(lines), statements: Number(statements), uncovered })
}

if (covered.size === 0) {
  console.error(`found no contract in Hardhat's coverage report: its format may have changed`)
  process.exitCode = 1
}
for (const [path, { lines, statements, uncovered }] of covered) {
  console.log(`${path}: ${lines}% of its lines, ${statements}% of its statements`)
  if (lines >= least && statements >= least) continue
  console.error(`less than ${least}%; uncovered: ${uncovered}`)
  process.exitCode = 1
}
console.log(`details: ${join('coverage', 'html', 'index.html')}`)
