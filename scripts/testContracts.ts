/**
 * The Solidity half of `npm test`: the generated files are those of the contracts, a payment costs what it did, and the
 * tests pass and cover. solc uses one core, and coverage compiles everything once more in a form of its own, so the two
 * lines of work run side by side.
 */
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { text } from 'node:stream/consumers'

const lines = [
  ['node scripts/generateAbi.ts --check', 'npm run gas:check'],
  ['npm run coverage:contracts'],
] as const

/** One after the other until one fails; what each wrote is shown when it has ended. */
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
