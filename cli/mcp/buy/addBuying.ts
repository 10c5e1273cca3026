import { type Command, Option } from 'commander'
import { parsePort } from '../parsePort.ts'
import type { McpFlags } from './run.ts'

const defaultPort = '4050'

/** `tollkeeper mcp buy`, or `tollkeeper mcp` alone. */
export function addBuying(mcp: Command): void {
  mcp
    .command('buy', { isDefault: true })
    .summary('buy for an agent: `tollkeeper mcp` alone does that')
    .description(
      "An MCP server (stdio) for agents' hosts, whose tools pay for HTTP requests and for tools of other MCP servers, in USDC and within " +
        'limits.',
    )
    .addOption(
      new Option(
        '--http [port]',
        `streamable HTTP at /mcp instead of standard input and output (port ${defaultPort}; 0: any)`,
      )
        .preset(defaultPort)
        .argParser(parsePort),
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
    .action(async (flags: McpFlags) => (await import('./run.ts')).runMcp(flags))
}
