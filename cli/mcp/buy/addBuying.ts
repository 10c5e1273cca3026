import type { Command } from 'commander'
import { port as portParser } from '#process/parsers'
import { CliError } from '../../cliError.ts'

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
    .option(
      '--http [port]',
      `streamable HTTP at /mcp instead of standard input and output (port ${defaultPort}; 0: any)`,
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
    .action(async ({ http, ...flags }: { http?: string | true; host: string; allowHost: string[] }) => {
      const { runMcp } = await import('./run.ts')
      await runMcp({
        ...flags,
        ...(http !== undefined && { http: parsePort(http === true ? defaultPort : http) }),
      })
    })
}

function parsePort(text: string): number {
  const port = portParser.parse(text)
  if (port !== undefined) return port
  throw new CliError('invalid_flags', `--http: expected ${portParser.expected}, got "${text}"`)
}
