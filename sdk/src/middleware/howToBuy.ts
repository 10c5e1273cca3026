import { formatShortUsdc } from '../protocol/amount.ts'
import { ownCommand } from './ownCommand.ts'

/** The facts about a purchase that a page shows to a person: the page of a 402, or a listing's page. */
export type ShownPurchase = {
  gatewayUrl: string
  network: string
  /** The token's address on a development chain, which a buyer's programs don't know. */
  usdcAddress?: string | undefined
  /** The maximum price in USDC base units. */
  maxAmount: bigint
}

/** Returns the environment variables that a buyer's programs read. */
function variablesOf({ gatewayUrl, network, usdcAddress }: ShownPurchase): [name: string, value: string][] {
  return [
    ['WALLET_PRIVATE_KEY', '0x…'],
    ['NETWORK', network],
    ['GATEWAY_URL', gatewayUrl],
    ...(usdcAddress === undefined ? [] : [['USDC_ADDRESS', usdcAddress] as [string, string]]),
  ]
}

/** Returns the command that pays for one GET request. */
export function writeBuyCommand(purchase: ShownPurchase, url: string): string {
  const variables = variablesOf(purchase).map(([name, value]) => `${name}=${value} \\\n`)
  return `${variables.join('')}${ownCommand} buy --max ${formatShortUsdc(purchase.maxAmount)} ${quoteForShell(url)}`
}

/**
 * Returns an entry for an MCP host's configuration. An agent in that host can then buy within a budget.
 *
 * @param url the agent may pay only this URL's host. Default: the agent may pay any host.
 */
export function writeMcpConfig(purchase: ShownPurchase, url?: string): string {
  const reached = url === undefined || !URL.canParse(url) ? undefined : new URL(url)
  const allow = reached ? ['--allow-host', reached.protocol === 'https:' ? reached.host : reached.origin] : []
  const [command, ...args] = ownCommand.split(' ')
  const server = {
    command,
    args: [...args, 'mcp', ...allow],
    env: {
      ...Object.fromEntries(variablesOf(purchase)),
      MAX_PAYMENT_USDC: formatShortUsdc(purchase.maxAmount),
      MAX_DAILY_USDC: '2',
    },
  }
  return `${JSON.stringify({ mcpServers: { tollkeeper: server } }, null, 2)}\n`
}

/**
 * Quotes a URL, so that no shell executes a part of it. Parts of the URL come from third parties.
 *
 * Uses double quotes, because cmd on Windows supports no other quotes: between single quotes, it reads `&` as the end of a command. Characters with a
 * meaning between double quotes in other shells are percent-encoded.
 */
function quoteForShell(url: string): string {
  const special = /["$\\`!]/g
  const encode = (letter: string) => `%${letter.charCodeAt(0).toString(16).toUpperCase()}`
  return `"${new URL(url).href.replace(special, encode)}"`
}
