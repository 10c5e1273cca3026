/**
 * The Solidity half of `npm test`: the generated files match the contracts, gas a payment hasn't changed, the tests
 * pass, and coverage is complete. solc uses one core and coverage compiles everything a second time, so the two run in
 * parallel.
 */
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { text } from 'node:stream/consumers'

const lines = [
  [
    'node tools/generateAbi.ts --check',
    'npm run gas:check',
    // Tests that sweep over gas limits run on the code as it is deployed; coverage leaves them out.
    'hardhat test solidity contracts/test/GasGriefing.t.sol',
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

process.stdout.write(`Side by side: ${lines.map((commands) => commands.join(', ')).join(' | ')}\n`)
const passed = await Promise.all(lines.map(runAll))
if (passed.includes(false)) process.exitCode = 1
