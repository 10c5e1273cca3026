import { existsSync } from 'node:fs'
import { CommanderError } from 'commander'
import { CliError, describeError, exitStatus } from './cliError.ts'
import { createProgram } from './program.ts'

const program = createProgram()

// A closed pipe (`| head`) is no error.
process.stdout.on('error', (error: NodeJS.ErrnoException) => {
  if (error.code !== 'EPIPE') throw error
  process.exit()
})

try {
  loadEnvironment(process.argv.slice(2))
  await program.parseAsync()
} catch (error) {
  if (error instanceof CommanderError) {
    // Commander has printed its message; --help and --version arrive here with 0.
    process.exitCode = error.exitCode === 0 ? exitStatus.ok : exitStatus.failed
  } else {
    process.stderr.write(`tollkeeper: ${describeError(error)}\n`)
    if (program.opts().debug && error instanceof Error) process.stderr.write(`${error.stack}\n`)
    process.exitCode = exitStatus.failed
  }
}

/**
 * Runs before parsing, because variables are defaults of flags. The demo and `dev` ignore `.env`. So does `mcp`: agents' hosts start
 * it in any open folder, and the `.env` of a stranger's repository must not lift a limit.
 *
 * The flag isn't called --env-file because Node takes that flag itself, wherever it stands (nodejs/node#54232).
 */
function loadEnvironment(args: readonly string[]): void {
  const position = args.findIndex((arg) => /^--env(=|$)/.test(arg))
  const path = position < 0 ? undefined : (args[position]?.split('=')[1] ?? args[position + 1])
  const command = args.find((arg) => !arg.startsWith('-')) ?? ''
  if (path === undefined && (['demo', 'dev', 'mcp'].includes(command) || !existsSync('.env'))) return
  try {
    process.loadEnvFile(path ?? '.env')
  } catch (error) {
    throw new CliError('unreadable_file', `--env: ${(error as Error).message}`, error)
  }
}
