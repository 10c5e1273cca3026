import { existsSync, readFileSync } from 'node:fs'
import { resolve } from 'node:path'
import { parseEnv } from 'node:util'
import { loadNetworksFile } from '@tollkeeper/chain/networksFile'
import { readVersion } from '@tollkeeper/runtime/version'
import { Command, CommanderError } from 'commander'
import { addMcpCommand } from '../mcp/command.ts'
import { addAuditCommand } from './audit/command.ts'
import { addBackupCommand } from './backup.ts'
import { addBookkeepingCommands } from './books/command.ts'
import { addBuyCommand } from './buy.ts'
import { addCompletionCommand } from './completion/command.ts'
import { addCostsCommand } from './costs/command.ts'
import { addDevCommand } from './dev.ts'
import { addDoctorCommand } from './doctor/command.ts'
import { addInitCommand } from './init/command.ts'
import { addKeysCommand } from './keys.ts'
import { addLoginCommands } from './login/command.ts'
import { addPayerCommand } from './payer.ts'
import { addPaymentsCommand } from './payments/command.ts'
import { addPriceCommand } from './price/command.ts'
import { addDemoCommand, addProcessCommands, addStartCommand } from './processes.ts'
import { addProviderCommand } from './provider/command.ts'
import { addReceiptsCommand } from './receipts/command.ts'
import { addSalesCommand } from './sales.ts'
import { addStatementCommand } from './statement.ts'
import { addSweepCommand } from './sweep/command.ts'
import { addTabsCommand } from './tabs.ts'
import { CliError, describeError, exitStatus, exitStatusHelp } from './terminal/cliError.ts'
import { Interrupted } from './terminal/prompt.ts'
import { describeUsageError } from './terminal/usageError.ts'
import { addWebhookCommand } from './webhook.ts'

const ownGroup = 'This command:'

/** The commands grouped by purpose. `--help`, docs/cli.md and completions show them in this order. */
const groups: Record<string, readonly ((program: Command) => void)[]> = {
  'Try it:': [addStartCommand, addDemoCommand, addDevCommand],
  'Sell:': [
    addLoginCommands,
    addProviderCommand,
    addPaymentsCommand,
    addTabsCommand,
    addStatementCommand,
    addBookkeepingCommands,
    addReceiptsCommand,
    addWebhookCommand,
  ],
  'Buy:': [addPriceCommand, addBuyCommand, addMcpCommand],
  'Operate:': [
    addInitCommand,
    addProcessCommands,
    addDoctorCommand,
    addCostsCommand,
    addBackupCommand,
    addKeysCommand,
    addPayerCommand,
    addSalesCommand,
    addSweepCommand,
  ],
  'Audit:': [addAuditCommand],
  [ownGroup]: [addCompletionCommand],
}

const firstSteps = `Where to begin:
  Try it   tollkeeper start                    a gateway and a paid sample API on this machine
  Sell     tollkeeper provider create --name … then tollkeeper login
  Buy      tollkeeper price https://…          then tollkeeper buy
  Operate  tollkeeper init                     then tollkeeper doctor
  Audit    tollkeeper receipts                 then tollkeeper audit
`

/** Creates `tollkeeper` and its commands; nothing runs before `parse`. */
export function createProgram(): Command {
  const program = new Command('tollkeeper')
    .description('Charge for HTTP APIs per request in USDC, and pay for them.')
    .version(readVersion(), '-V, --version', 'print the version')
    .option('--debug', 'print stack traces of errors')
    .option('--env <file>', 'load variables from a file. Variables that are already set win')
    .helpOption('-h, --help', 'print this help')
    .addHelpCommand(
      new Command('help').argument('[command]').summary('print the help of a command').helpGroup(ownGroup),
    )
    .addHelpText('before', firstSteps)
    .addHelpText('after', `\n${exitStatusHelp}\n\nExample:\n  $ tollkeeper audit --help`)
    .exitOverride()
    .showSuggestionAfterError()
    // Usage errors are printed below, in the same form as all other errors.
    .configureOutput({ outputError: () => {} })

  for (const [heading, commands] of Object.entries(groups)) {
    program.commandsGroup(heading)
    for (const addCommand of commands) addCommand(program)
  }
  return program
}

/**
 * Runs a command line, and sets the exit status.
 *
 * @param args the arguments after `tollkeeper`.
 */
export async function runCommandLine(args: readonly string[]): Promise<void> {
  let program: Command | undefined
  try {
    loadEnvironment(args)
    loadNetworks(args)
    program = createProgram()
    await program.parseAsync(args, { from: 'user' })
  } catch (error) {
    if (error instanceof Interrupted) {
      process.stderr.write('\n')
      process.exitCode = exitStatus.interrupted
    } else if (error instanceof CommanderError) {
      // Commander also throws after it has printed what was asked for: with status 0 after --help and --version, and with the code
      // `commander.help` after it printed the help of a group that was called without a command.
      const isShown = error.exitCode === 0 || error.code === 'commander.help'
      if (!isShown && program !== undefined)
        process.stderr.write(`tollkeeper: ${describeUsageError(program, args, error)} (invalid_flags)\n`)
      process.exitCode = error.exitCode === 0 ? exitStatus.ok : exitStatus.failed
    } else {
      process.stderr.write(`tollkeeper: ${describeError(error)}\n`)
      if (program?.opts().debug && error instanceof Error) process.stderr.write(`${error.stack}\n`)
      process.exitCode = exitStatus.failed
    }
  }
}

/**
 * Loads the networks of a file before creating the commands, because their help lists the networks. With an invalid file, `--help`
 * and `doctor` still run, because `doctor` reports the error itself; other commands fail here.
 */
function loadNetworks(args: readonly string[]): void {
  try {
    loadNetworksFile(process.env)
  } catch (error) {
    const isReported = args.includes('doctor') || args.includes('--help') || args.includes('-h')
    if (!isReported) throw error
  }
}

/**
 * Variables that a `.env` of the working directory can't set, because that folder may be a stranger's repository. They determine
 * which file of stored API keys is read, and whether a gateway's certificate is checked.
 */
const notFromFolder = new Set(['HOME', 'XDG_CONFIG_HOME', 'NODE_TLS_REJECT_UNAUTHORIZED'])

/**
 * Loads `.env` before parsing, because variables are defaults of flags. Some commands ignore that file: the demo and `dev` have
 * separate settings, and `init` writes such a file. `mcp` ignores it because agents' hosts start `mcp` in the folder that is open:
 * a `.env` in a stranger's repository could raise the spending limits.
 *
 * The flag isn't called --env-file because Node itself interprets that flag, at any position (nodejs/node#54232).
 */
function loadEnvironment(args: readonly string[]): void {
  const end = args.indexOf('--')
  const own = end < 0 ? args : args.slice(0, end)
  const position = own.findIndex((arg) => /^--env(=|$)/.test(arg))
  const path = position < 0 ? undefined : (own[position]?.split('=')[1] ?? own[position + 1])
  const command = own.find((arg) => !arg.startsWith('-')) ?? ''
  if (path === undefined && (['demo', 'dev', 'init', 'mcp'].includes(command) || !existsSync('.env'))) return
  try {
    for (const [name, value] of Object.entries(parseEnv(readFileSync(path ?? '.env', 'utf8')))) {
      if (path === undefined && notFromFolder.has(name)) continue
      process.env[name] ??= value
    }
  } catch (error) {
    const { code, message } = error as NodeJS.ErrnoException
    const reason = code === 'ENOENT' ? `there is no file ${resolve(path ?? '.env')}` : message
    throw new CliError('unreadable_file', `--env: ${reason}`, error)
  }
}
