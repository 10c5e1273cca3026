import { type Command, Option } from 'commander'
import { networkNames } from '#protocol/networks'
import { CliError } from '../../cliError.ts'
import { withKey } from '../../provider/gateway.ts'
import { parsePort } from '../parsePort.ts'
import type { SellOptions } from './run.ts'

/** `tollkeeper mcp sell -- <command>`. */
export function addSelling(mcp: Command): void {
  withKey(mcp.command('sell'))
    .summary('sell the tools of an MCP server, without code')
    .description(
      'Runs an MCP server (stdio) and stands in front of it: whoever calls a tool that has a price pays for it first, and a tool ' +
        'that fails costs nothing. Everything else is passed on as it is. The file of prices is JSON, {"tool": "0.01"}, in decimal ' +
        'USDC, or "free"; "*" stands for all others. A tool that it does not name is neither shown nor served. ' +
        'Each priced tool is registered at the gateway as mcp://tool/<tool>, at that price.',
    )
    .argument('<command...>', 'after --, with its arguments')
    .requiredOption('--prices <file>', 'what each tool costs')
    .option(
      '--server <name>',
      'registers mcp://tool/<name>/<tool>: for a provider whose servers have tools of one name',
    )
    .addOption(
      new Option('--network <name>', "where tools are paid; default: the gateway's first").choices(
        networkNames,
      ),
    )
    .addOption(
      new Option('--http <port>', 'serve streamable HTTP at /mcp, not stdio; 0: any free port').argParser(
        parsePort,
      ),
    )
    .option('--host <address>', 'where --http listens; beyond loopback anybody may call', '127.0.0.1')
    .addHelpText(
      'after',
      '\nExample:\n  $ echo \'{"forecast": "0.01", "help": "free"}\' > prices.json\n' +
        '  $ TOLLKEEPER_API_KEY=tk_… tollkeeper mcp sell --provider prov_… --prices prices.json -- node weather-server.js',
    )
    .action(async (command: string[], flags: Omit<SellOptions, 'apiKey'> & { apiKey?: string }) => {
      const { apiKey } = flags
      if (!apiKey)
        throw new CliError('invalid_flags', 'TOLLKEEPER_API_KEY must be set, or --api-key be given')
      const { runSell } = await import('./run.ts')
      process.exitCode = await runSell(command, { ...flags, apiKey })
    })
}
