import { join } from 'node:path'
import { setTimeout as delay } from 'node:timers/promises'
import { McpServer } from '@modelcontextprotocol/sdk/server/mcp.js'
import { StdioServerTransport } from '@modelcontextprotocol/sdk/server/stdio.js'
import type { Transport } from '@modelcontextprotocol/sdk/shared/transport.js'
import { readVersion } from '@tollkeeper/runtime/version'
import { wrapFetch } from '@tollkeeper/sdk/client/wrapFetch'
import { formatUsdc } from '@tollkeeper/sdk/protocol/amount'
import { privateKeyToAddress } from 'viem/accounts'
import { CliError } from '../../cli/terminal/cliError.ts'
import { isLoopback, serveSessions } from '../sessions/serveSessions.ts'
import { createBudget } from './budget.ts'
import { addBudgetTool } from './budgetTool.ts'
import { addFetchTool } from './fetchTool.ts'
import { createForeignServers } from './foreignServers.ts'
import { addMcpTools } from './mcpTools.ts'
import { createReachable } from './reachable.ts'
import { messageOf } from './result.ts'
import { addSearchTool } from './searchTool.ts'
import { type BuyerSettings, readBuyerSettings } from './settings.ts'
import { openWalletFolder } from './walletFolder.ts'

export type McpFlags = {
  /** Port to listen on. Undefined: use standard input and output. */
  http?: number
  host: string
  allowHost: readonly string[]
}

/**
 * Timeout in ms for closing tabs. Agents' hosts close a server's input and kill the server a few seconds later. Tabs that are
 * still open by then stay in the folder.
 */
const closingMs = 10_000

/** Idle time in ms after which a session ends. It is long because few clients start another session after theirs has ended. */
const sessionIdleMs = 86_400_000

/** Runs the server until the host closes standard input, or a signal arrives. */
export async function runMcp({ http, host, allowHost }: McpFlags): Promise<void> {
  const settings = readBuyerSettings(process.env)
  const { network, token } = settings
  if (http !== undefined && !isLoopback(host) && token === null) {
    const needed = 'listening beyond loopback requires MCP_TOKEN, which clients must present'
    throw new CliError('invalid_flags', `--host ${host}: ${needed}`)
  }
  const ended = untilEnd(http === undefined)
  const { address, createServer, stop, close } = await openBuyer(settings, allowHost)
  const door =
    http === undefined
      ? await serveStdio(createServer())
      : await serveSessions(sessionOf(createServer), {
          host,
          port: http,
          token,
          idleMs: sessionIdleMs,
          warn: say,
        })
  const where = 'url' in door ? door.url : 'stdio'
  say(
    `listening on ${where}, pays as ${address} on ${network}, at most ${formatUsdc(settings.maxDaily)} USDC a day`,
  )

  say(`stopping: ${await ended}`)
  stop()
  await door.close()
  await close()
  process.exit(0)
}

/** Opens the wallet with its limits, and creates the MCP server through which agents pay. */
export async function openBuyer(settings: BuyerSettings, allowHost: readonly string[]) {
  const { gatewayUrl, discoveryUrl, network } = settings
  const address = privateKeyToAddress(settings.walletPrivateKey)
  const stopping = new AbortController()
  const reachable = createReachable(allowHost, [gatewayUrl, discoveryUrl])
  const folder = await openWalletFolder(
    join(settings.walletFolder, `${network}-${address.toLowerCase()}`),
    settings,
  )
  const budget = createBudget(settings, folder, allowHost)
  const payingFetch = wrapFetch(reachable.fetch, {
    ...budget.options,
    stores: folder.stores('fetch'),
  })
  const servers = createForeignServers({ budget, folder, reachable })
  const context = { budget, folder, reachable, stopping: stopping.signal }

  return {
    address,
    createServer() {
      const server = new McpServer({ name: 'tollkeeper', version: readVersion() })
      addFetchTool(server, context, payingFetch)
      addMcpTools(server, context, servers)
      addSearchTool(server, context, settings)
      addBudgetTool(server, context, { ...settings, address }, async () => [
        ...(await payingFetch.tabs()),
        ...(await servers.tabs()),
      ])
      return server
    },
    /** Ends the calls in progress. */
    stop: () => stopping.abort(),
    /** Closes the tabs, then the folder and the connections. */
    async close(): Promise<void> {
      const closing = Promise.allSettled([payingFetch.close(), servers.close()])
      for (const closed of (await Promise.race([closing, delay(closingMs)])) ?? [])
        if (closed.status === 'rejected') say(`a tab was not closed: ${messageOf(closed.reason)}`)
      await Promise.all([folder.close(), reachable.close()])
    },
  }
}

/** Returns a function that creates a server for a client and resolves when the session ends. */
function sessionOf(createServer: () => McpServer) {
  return async (transport: Transport): Promise<void> => {
    const server = createServer()
    const closed = new Promise<void>((resolve) => {
      server.server.onclose = resolve
    })
    await server.connect(transport)
    await closed
  }
}

async function serveStdio(server: McpServer): Promise<{ close: () => Promise<void> }> {
  await server.connect(new StdioServerTransport())
  return server
}

/** Resolves with the reason to end the server: a signal, or over stdio a closed input or output. */
function untilEnd(isStdio: boolean): Promise<string> {
  return new Promise((resolve) => {
    // Ignore a further signal that arrives while tabs are being closed.
    for (const signal of ['SIGTERM', 'SIGINT', 'SIGHUP'] as const) process.on(signal, resolve)
    if (!isStdio) return
    for (const event of ['end', 'close', 'error'])
      process.stdin.once(event, () => resolve('its input is closed'))
    // Without this listener, a closed pipe would end the process immediately.
    process.stdout.removeAllListeners('error').on('error', () => resolve('its output is closed'))
  })
}

/** Writes a message to standard error, because standard output may contain only the MCP messages for the client. */
function say(text: string): void {
  process.stderr.write(`tollkeeper mcp: ${text}\n`)
}
