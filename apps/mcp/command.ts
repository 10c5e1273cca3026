import { integer, port } from '@tollkeeper/runtime/parsers'
import { networkNames } from '@tollkeeper/sdk/protocol/networks'
import { type Command, Option } from 'commander'
import { withKey } from '../cli/provider/gateway.ts'
import { CliError } from '../cli/terminal/cliError.ts'
import { parsedOption } from '../cli/terminal/options.ts'
import type { McpFlags } from './buy/run.ts'
import type { SellOptions } from './sell/run.ts'

/** `tollkeeper mcp`, which is `tollkeeper mcp buy`, and `tollkeeper mcp sell`. */
export function addMcpCommand(program: Command): void {
  const mcp = program
    .command('mcp')
    .summary('buy for an agent, or sell tools, over MCP')
    .description("An MCP server that pays for an agent, and one that sells another server's tools.")
    .addHelpText(
      'after',
      '\nExample:\n  $ WALLET_PRIVATE_KEY=0x… NETWORK=base GATEWAY_URL=https://gateway.example tollkeeper mcp',
    )
  addBuying(mcp)
  addSelling(mcp)
}

const defaultPort = '4050'

/** `tollkeeper mcp buy`, or `tollkeeper mcp` alone. */
function addBuying(mcp: Command): void {
  mcp
    .command('buy', { isDefault: true })
    .summary('buy for an agent: `tollkeeper mcp` alone does that')
    .description(
      "An MCP server (stdio) for agents' hosts, whose tools pay for HTTP requests and for tools of other MCP servers, in USDC and within " +
        'limits.',
    )
    .addOption(
      parsedOption(
        '--http [port]',
        `streamable HTTP at /mcp instead of standard input and output (port ${defaultPort}; 0: any)`,
        port,
      ).preset(defaultPort),
    )
    .option(
      '--host <address>',
      'where --http listens; beyond loopback clients present MCP_TOKEN',
      '127.0.0.1',
    )
    .option(
      '--allow-host <host>',
      'reach and pay nobody else, again for each: api.example, http://127.0.0.1:8080. Without it: whoever is public, by https',
      (host: string, hosts: string[]) => [...hosts, host],
      [],
    )
    .addHelpText(
      'after',
      `
The wallet is WALLET_PRIVATE_KEY, on NETWORK, by GATEWAY_URL. Limits: ASK_ABOVE_USDC, MAX_PAYMENT_USDC, MAX_DAILY_USDC and
MAX_DAILY_USDC_PER_HOST; docs/configuration.md has all variables. A .env is read only where --env names it.

Example:
  $ WALLET_PRIVATE_KEY=0x… NETWORK=base GATEWAY_URL=https://gateway.example MAX_DAILY_USDC=2 tollkeeper mcp buy --allow-host api.example`,
    )
    .action(async (flags: McpFlags) => (await import('./buy/run.ts')).runMcp(flags))
}

/** `tollkeeper mcp sell -- <command>`. */
function addSelling(mcp: Command): void {
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
      parsedOption('--http <port>', 'serve streamable HTTP at /mcp, not stdio; 0: any free port', port),
    )
    .option('--host <address>', 'where --http listens; beyond loopback anybody may call', '127.0.0.1')
    .addOption(
      parsedOption(
        '--trusted-proxies <number>',
        'number of reverse proxies in front of --http, that is, how many trailing X-Forwarded-For entries to trust',
        integer(0, 10),
      ).default(0),
    )
    .addHelpText(
      'after',
      '\nExample:\n  $ echo \'{"forecast": "0.01", "help": "free"}\' > prices.json\n' +
        '  $ TOLLKEEPER_API_KEY=tk_… tollkeeper mcp sell --provider prov_… --prices prices.json -- node weather-server.js',
    )
    .action(async (command: string[], flags: Omit<SellOptions, 'apiKey'> & { apiKey?: string }) => {
      const { apiKey } = flags
      if (!apiKey)
        throw new CliError('invalid_flags', 'TOLLKEEPER_API_KEY must be set, or --api-key be given')
      const { runSell } = await import('./sell/run.ts')
      process.exitCode = await runSell(command, { ...flags, apiKey })
    })
}
