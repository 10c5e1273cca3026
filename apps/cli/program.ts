import { existsSync } from 'node:fs'
import { resolve } from 'node:path'
import { readVersion } from '@tollkeeper/runtime/version'
import { Command, CommanderError } from 'commander'
import { addMcpCommand } from '../mcp/command.ts'
import { addAuditCommand } from './audit/command.ts'
import { addBuyCommand } from './buy.ts'
import { addDevCommand } from './dev.ts'
import { addDoctorCommand } from './doctor/command.ts'
import { addKeysCommand } from './keys.ts'
import { addPayerCommand } from './payer.ts'
import { addProcessCommands } from './processes.ts'
import { addProviderCommand } from './provider/command.ts'
import { addReceiptsCommand } from './receipts/command.ts'
import { addSweepCommand } from './sweep/command.ts'
import { addTabsCommand } from './tabs.ts'
import { CliError, describeError, exitStatus } from './terminal/cliError.ts'

/** `tollkeeper` and its commands; nothing runs before `parse`. */
export function createProgram(): Command {
  const program = new Command('tollkeeper')
    .description('Pay-per-request for HTTP APIs in USDC: gateway, settlement keeper, indexer, audit.')
    .version(readVersion())
    .option('--debug', 'show stack traces')
    .option('--env <path>', 'read variables from a file first; those that are set already stay', (path) => {
      process.loadEnvFile(path)
      return path
    })
    .addHelpText('after', '\nExample:\n  $ tollkeeper audit --help')
    .exitOverride()
    .showSuggestionAfterError()

  addProcessCommands(program)
  addDevCommand(program)
  addBuyCommand(program)
  addMcpCommand(program)
  addReceiptsCommand(program)
  addAuditCommand(program)
  addProviderCommand(program)
  addPayerCommand(program)
  addSweepCommand(program)
  addTabsCommand(program)
  addKeysCommand(program)
  addDoctorCommand(program)
  return program
}

/**
 * Runs a command line, and sets the exit status.
 *
 * @param args what stands behind `tollkeeper`.
 */
export async function runCommandLine(args: readonly string[]): Promise<void> {
  const program = createProgram()
  try {
    loadEnvironment(args)
    await program.parseAsync(args, { from: 'user' })
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
}

/**
 * Runs before parsing, because variables are defaults of flags. The demo and `dev` ignore `.env`; so does `mcp`, which agents' hosts start
 * in whatever folder is open: what a stranger's repository has in its `.env` must not lift a limit.
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
    const { code, message } = error as NodeJS.ErrnoException
    const reason = code === 'ENOENT' ? `there is no file ${resolve(path ?? '.env')}` : message
    throw new CliError('unreadable_file', `--env: ${reason}`, error)
  }
}
