import { Command } from 'commander'
import { readVersion } from '#process/version'
import { addAuditCommand } from './audit/command.ts'
import { addBuyCommand } from './buy.ts'
import { addDevCommand } from './dev.ts'
import { addDoctorCommand } from './doctor/command.ts'
import { addKeysCommand } from './keys.ts'
import { addMcpCommand } from './mcp/command.ts'
import { addPayerCommand } from './payer.ts'
import { addProcessCommands } from './processes.ts'
import { addProviderCommand } from './provider/command.ts'
import { addReceiptsCommand } from './receipts/command.ts'
import { addSweepCommand } from './sweep/command.ts'

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
  addKeysCommand(program)
  addDoctorCommand(program)
  return program
}
