/**
 * `npm test`: Vitest, and testContracts.ts beside it. Vitest's tests wait a fifth of their time, for blocks, processes and
 * pages; compiling the contracts only computes, and takes what they leave. Its output comes in one piece, after Vitest's.
 * Arguments are Vitest's: `npm test -- <path>`.
 */
import { type ChildProcess, spawn } from 'node:child_process'
import { once } from 'node:events'
import { constants, setPriority } from 'node:os'
import { join } from 'node:path'
import { text } from 'node:stream/consumers'

const statusOf = async (child: ChildProcess): Promise<number | null> => (await once(child, 'close'))[0]

const contracts = spawn(process.execPath, [join(import.meta.dirname, 'testContracts.ts')], {
  stdio: ['ignore', 'pipe', 'inherit'],
})
if (contracts.pid !== undefined) setPriority(contracts.pid, constants.priority.PRIORITY_BELOW_NORMAL)
const vitest = spawn('vitest', ['run', ...process.argv.slice(2)], { stdio: 'inherit' })

const [output, ...statuses] = await Promise.all([
  text(contracts.stdout),
  statusOf(contracts),
  statusOf(vitest),
])
process.stdout.write(`\n${output}`)
if (statuses.some((status) => status !== 0)) process.exitCode = 1
