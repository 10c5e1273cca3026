import { StdioClientTransport } from '@modelcontextprotocol/sdk/client/stdio.js'
import { StdioServerTransport } from '@modelcontextprotocol/sdk/server/stdio.js'
import type { Transport } from '@modelcontextprotocol/sdk/shared/transport.js'
import type { Tool } from '@modelcontextprotocol/sdk/types.js'
import { createToolGate } from '@tollkeeper/sdk/mcp/toolGate'
import type { NetworkName } from '@tollkeeper/sdk/protocol/networks'
import type { GatewayFlags } from '../../cli/provider/gateway.ts'
import { CliError, exitStatus } from '../../cli/terminal/cliError.ts'
import { printable } from '../../cli/terminal/output.ts'
import { serveSessions } from '../sessions/serveSessions.ts'
import { type PriceOf, readPrices } from './prices.ts'
import { registerTools } from './registerTools.ts'
import { type SellToolsOptions, sellTools } from './sellTools.ts'

export type SellOptions = GatewayFlags & {
  apiKey: string
  prices: string
  server?: string | undefined
  serverUrl?: string | undefined
  network?: NetworkName | undefined
  http?: number | undefined
  host: string
  /** Number of reverse proxies in front of `--http`. */
  trustedProxies: number
}

/**
 * Sells the tools of a server until the client closes the connection, the server ends, or a signal arrives. Over HTTP, each
 * session has a separate server.
 *
 * @returns the exit status.
 */
export async function runSell(command: string[], options: SellOptions): Promise<number> {
  const priceOf = await readPrices(options.prices, options.server)
  const sellOptions = toSellToolsOptions(options, priceOf)
  const [file = '', ...args] = command
  const open = (client: Transport, onPaid?: () => void) =>
    sellTools(client, openServer(file, args), { ...sellOptions, onPaid })
  const stopped = new Promise<void>((resolve) => {
    for (const signal of ['SIGINT', 'SIGTERM'] as const) process.once(signal, () => resolve())
  })
  if (options.http === undefined) return serveStdio(open, stopped)
  const { host, http: port, trustedProxies } = options
  const running = await serveSessions(open, { host, port, warn, trustedProxies })
  warn(`listening on ${running.url}`)
  await stopped
  await running.close()
  return exitStatus.ok
}

async function serveStdio(
  open: (client: Transport) => ReturnType<typeof sellTools>,
  stopped: Promise<void>,
): Promise<number> {
  const client = new StdioServerTransport()
  const close = () => {
    client.close().catch((error: Error) => warn(`the connection was not closed: ${error.message}`))
  }
  // The transport doesn't detect the end of its input by itself.
  process.stdin.once('end', close)
  void stopped.then(close)
  try {
    return (await open(client)) === 'client' ? exitStatus.ok : exitStatus.unwell
  } catch (error) {
    throw new CliError(
      'server_not_started',
      `The server could not be started: ${(error as Error).message}`,
      error,
    )
  }
}

/**
 * Starts the server. It inherits our environment and standard error, except the API key, because the server never has to register
 * an endpoint or void a payment.
 */
function openServer(command: string, args: string[]): Transport {
  const { TOLLKEEPER_API_KEY: _, ...env } = process.env as Record<string, string>
  return new StdioClientTransport({ command, args, env, stderr: 'inherit' })
}

function toSellToolsOptions(options: SellOptions, priceOf: PriceOf): SellToolsOptions {
  const { gateway: gatewayUrl, provider: providerId = '', apiKey, server } = options
  type AnswerCall = ReturnType<typeof createToolGate>
  const gates = new Map<string, AnswerCall>()
  const registered = new Set<string>()
  function gateOf(price: string): AnswerCall {
    const gate =
      gates.get(price) ??
      createToolGate({
        gatewayUrl,
        providerId,
        apiKey,
        pricing: { usdcPerUnit: price },
        warn,
        ...(server !== undefined && { server }),
      })
    gates.set(price, gate)
    return gate
  }
  return {
    priceOf,
    answerCall: (price, call, run) => gateOf(price)(call, run),
    async register(tools: readonly Tool[]) {
      const priced = tools.flatMap(({ name, description }) => {
        const price = priceOf(name)
        if (price === undefined || price === 'free' || registered.has(name)) return []
        return [{ name, description, price }]
      })
      if (priced.length > 0) await registerTools(options, priced)
      for (const { name } of priced) registered.add(name)
    },
    warn,
  }
}

/** Writes a message to standard error, because standard output may contain only the MCP messages for the client. */
function warn(message: string): void {
  process.stderr.write(`${printable(message.startsWith('[') ? message : `[tollkeeper] ${message}`)}\n`)
}
