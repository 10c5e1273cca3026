import { integer, port } from '@tollkeeper/runtime/parsers'
import { networkNames } from '@tollkeeper/sdk/protocol/networks'
import { type Command, Option } from 'commander'
import { keyFor, withKey } from '../cli/provider/gateway.ts'
import { CliError } from '../cli/terminal/cliError.ts'
import { httpUrl, parsedOption } from '../cli/terminal/options.ts'
import type { McpFlags } from './buy/run.ts'
import type { SellOptions } from './sell/run.ts'

/** Adds `tollkeeper mcp buy`, also as `tollkeeper mcp` alone, and `tollkeeper mcp sell`. */
export function addMcpCommand(program: Command): void {
  const mcp = program
    .command('mcp')
    .summary('buy for an agent over MCP; `mcp sell` sells the tools of an MCP server')
    .description("Runs an MCP server that pays for an agent, or one that sells another server's tools.")
    .addHelpText(
      'after',
      '\nExample:\n  $ WALLET_PRIVATE_KEY=0x… NETWORK=base GATEWAY_URL=https://gateway.example tollkeeper mcp',
    )
  addBuying(mcp)
  addSelling(mcp)
}

const defaultPort = '4050'

/** Adds `tollkeeper mcp buy`, also as `tollkeeper mcp` alone. */
function addBuying(mcp: Command): void {
  mcp
    .command('buy', { isDefault: true })
    .summary('buy for an agent; `buy` may be omitted')
    .description(
      "Runs an MCP server (stdio) for agents' hosts. Its tools pay for HTTP requests and for tools of other MCP servers, in USDC and within " +
        'limits.',
    )
    .addOption(
      parsedOption(
        '--http [port]',
        `serve streamable HTTP at /mcp instead of standard input and output (default port ${defaultPort}; 0: any free port)`,
        port,
      ).preset(defaultPort),
    )
    .option(
      '--host <address>',
      'address that --http listens on; beyond loopback, clients must present MCP_TOKEN',
      '127.0.0.1',
    )
    .option(
      '--allow-host <host>',
      'reach and pay only this host, such as api.example or http://127.0.0.1:8080; repeat the flag to allow several (default: any public host, by https)',
      (host: string, hosts: string[]) => [...hosts, host],
      [],
    )
    .addHelpText(
      'after',
      `
WALLET_PRIVATE_KEY pays on NETWORK through GATEWAY_URL. Limits: ASK_ABOVE_USDC, MAX_PAYMENT_USDC, MAX_DAILY_USDC and
MAX_DAILY_USDC_PER_HOST; docs/configuration.md has all variables. A .env is read only if --env names it.

Example:
  $ WALLET_PRIVATE_KEY=0x… NETWORK=base GATEWAY_URL=https://gateway.example MAX_DAILY_USDC=2 tollkeeper mcp buy --allow-host api.example`,
    )
    .action(async (flags: McpFlags) => (await import('./buy/run.ts')).runMcp(flags))
}

/** Adds `tollkeeper mcp sell -- <command>`. */
function addSelling(mcp: Command): void {
  withKey(mcp.command('sell'), { hasJson: false })
    .summary('sell the tools of an MCP server without code')
    .description(
      'Runs an MCP server (stdio) behind a paywall: callers pay before a tool with a price runs, and a tool that fails costs nothing. ' +
        'Everything else is forwarded unchanged. The price file is JSON, {"tool": "0.01"}, in decimal USDC, or "free"; "*" covers all ' +
        'other tools. A tool without a price is neither listed nor served. ' +
        'Each priced tool is registered at the gateway as mcp://tool/<tool>, at that price.',
    )
    .argument('<command...>', 'command of the MCP server, after --')
    .requiredOption('--prices <file>', 'file with the price of each tool')
    .option(
      '--server <name>',
      'register tools as mcp://tool/<name>/<tool>, for a provider with several servers',
    )
    .addOption(
      parsedOption(
        '--server-url <url>',
        'URL at which buyers reach the server; it is registered with the tools, and the market and discovery show it',
        httpUrl,
      ),
    )
    .addOption(
      new Option(
        '--network <name>',
        "network on which tools are paid (default: the gateway's first)",
      ).choices(networkNames),
    )
    .addOption(
      parsedOption('--http <port>', 'serve streamable HTTP at /mcp instead of stdio; 0: any free port', port),
    )
    .option(
      '--host <address>',
      'address that --http listens on; beyond loopback, anyone may call',
      '127.0.0.1',
    )
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
      const apiKey = keyFor(flags)
      if (!apiKey)
        throw new CliError(
          'invalid_flags',
          '--api-key: required. Run `tollkeeper login`, set TOLLKEEPER_API_KEY, or give the flag',
        )
      const { runSell } = await import('./sell/run.ts')
      process.exitCode = await runSell(command, { ...flags, apiKey })
    })
}
