import { existsSync, readFileSync } from 'node:fs'
import { Command, CommanderError } from 'commander'
import { addAuditCommand } from './audit/command.ts'
import { CliError, describeError, exitStatus } from './cliError.ts'
import { addDoctorCommand } from './doctor/command.ts'
import { addKeysCommand } from './keys.ts'
import { addProcessCommands } from './processes.ts'
import { addProviderCommand } from './provider.ts'

const { version } = JSON.parse(readFileSync(new URL('../package.json', import.meta.url), 'utf8'))

const program = new Command('tollkeeper')
  .description('Pay-per-request for HTTP APIs in USDC: gateway, settlement keeper, indexer, audit.')
  .version(version)
  .option('--debug', 'show stack traces')
  .option('--env <path>', 'read variables from a file first; those that are set already stay', (path) => {
    process.loadEnvFile(path)
    return path
  })
  .addHelpText('after', '\nExample:\n  $ tollkeeper audit --help')
  .exitOverride()
  .showSuggestionAfterError()

addProcessCommands(program)
addAuditCommand(program)
addProviderCommand(program)
addKeysCommand(program)
addDoctorCommand(program)

// A reader that has seen enough (head, less) is no error.
process.stdout.on('error', (error: NodeJS.ErrnoException) => {
  if (error.code !== 'EPIPE') throw error
  process.exit()
})

try {
  loadEnvironment(process.argv.slice(2))
  await program.parseAsync()
} catch (error) {
  if (error instanceof CommanderError) {
    // Commander has written its message already; --help and --version arrive here with 0.
    process.exitCode = error.exitCode === 0 ? exitStatus.ok : exitStatus.failed
  } else {
    process.stderr.write(`tollkeeper: ${describeError(error)}\n`)
    if (program.opts().debug && error instanceof Error) process.stderr.write(`${error.stack}\n`)
    process.exitCode = exitStatus.failed
  }
}

/**
 * Before anything is parsed: variables are defaults of flags. The demo is the same everywhere, whatever `.env` says.
 *
 * Not called --env-file: Node takes a flag of that name for its own, wherever it stands (nodejs/node#54232).
 */
function loadEnvironment(args: readonly string[]): void {
  const position = args.findIndex((arg) => /^--env(=|$)/.test(arg))
  const path = position < 0 ? undefined : (args[position]?.split('=')[1] ?? args[position + 1])
  if (path === undefined && (args[0] === 'demo' || !existsSync('.env'))) return
  try {
    process.loadEnvFile(path ?? '.env')
  } catch (error) {
    throw new CliError('unreadable_file', `--env: ${(error as Error).message}`, error)
  }
}
