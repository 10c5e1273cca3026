/**
 * The Solidity half of `npm test`: the generated files match the contracts, gas a payment hasn't changed, the tests
 * pass, and coverage is complete. solc uses one core and coverage compiles everything a second time, so the two run in
 * parallel.
 *
 * Nothing runs while contracts/passed.json, which only a full run writes, says that just this passed in the last seven days.
 * Without that file everything runs.
 */
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { text } from 'node:stream/consumers'
import { contracts, hashInputs, readPassed, reasonToRun, writePassed } from './passed.ts'

const lines = [
  [
    'node tools/generateAbi.ts --check',
    'npm run gas:check',
    // Tests that sweep over gas limits run on the code as it is deployed; coverage leaves them out.
    'hardhat test solidity contracts/test/GasGriefing.t.sol contracts/test/TabGasGriefing.t.sol',
  ],
  ['npm run coverage:contracts'],
] as const

/** Runs commands in order until one fails; prints the output of each when it ends. */
async function runAll(commands: readonly string[]): Promise<boolean> {
  for (const command of commands) {
    const child = spawn(`${command} 2>&1`, { shell: true, stdio: ['inherit', 'pipe', 'inherit'] })
    const [output, [status]] = await Promise.all([text(child.stdout), once(child, 'close')])
    process.stdout.write(output)
    if (status !== 0) {
      process.stderr.write(`${command} failed\n`)
      return false
    }
  }
  return true
}

async function runEverything(inputs: string, why: string): Promise<void> {
  process.stdout.write(`Contracts: everything runs, since ${why}.\n`)
  process.stdout.write(`Side by side: ${lines.map((commands) => commands.join(', ')).join(' | ')}\n`)
  const passed = await Promise.all(lines.map(runAll))
  if (passed.includes(false)) {
    process.exitCode = 1
    return
  }
  await writePassed(contracts, inputs)
}

const [inputs, last] = await Promise.all([hashInputs(contracts), readPassed(contracts)])
const why = reasonToRun(contracts, last, inputs, new Date())
if (why !== null) await runEverything(inputs, why)
else
  process.stdout.write(
    `Contracts: SKIPPED ${lines.flat().join(', ')}. They passed on ${last?.at} with the same contracts, tests, tools and ` +
      `packages. All of it: rm ${contracts.passedFile}\n`,
  )
