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
import { addBudgetTool } from './budgetTool.ts'
import { addFetchTool } from './fetchTool.ts'
import { createForeignServers } from './foreignServers.ts'
import { addMcpTools } from './mcpTools.ts'
import { createPurse } from './purse.ts'
import { createReachable } from './reachable.ts'
import { messageOf } from './result.ts'
import { addSearchTool } from './searchTool.ts'
import { type BuyerSettings, readBuyerSettings } from './settings.ts'
import { openWalletFolder } from './walletFolder.ts'

export type McpFlags = {
  /** A port. Absent: standard input and output. */
  http?: number
  host: string
  allowHost: readonly string[]
}

/** Agents' hosts kill a server a few seconds after they closed its input; tabs that are still open then stay in the folder. */
const closingMs = 10_000

/** Long, because few clients begin another session when theirs is gone. */
const sessionIdleMs = 86_400_000

/** Runs until its host closes standard input, or a signal comes. */
export async function runMcp({ http, host, allowHost }: McpFlags): Promise<void> {
  const settings = readBuyerSettings(process.env)
  const { network, token } = settings
  if (http !== undefined && !isLoopback(host) && token === null) {
    const needed = 'who listens beyond loopback needs MCP_TOKEN, which clients present'
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

/** A wallet with its limits, and what clients call to buy by it. */
export async function openBuyer(settings: BuyerSettings, allowHost: readonly string[]) {
  const { gatewayUrl, discoveryUrl, network } = settings
  const address = privateKeyToAddress(settings.walletPrivateKey)
  const stopping = new AbortController()
  const reachable = createReachable(allowHost, [gatewayUrl, discoveryUrl])
  const folder = await openWalletFolder(
    join(settings.walletFolder, `${network}-${address.toLowerCase()}`),
    settings,
  )
  const purse = createPurse(settings, folder, allowHost)
  const payingFetch = wrapFetch(reachable.fetch, {
    ...purse.options,
    tabs: { store: folder.tabs('fetch') },
  })
  const servers = createForeignServers({ purse, folder, reachable })
  const context = { purse, folder, reachable, stopping: stopping.signal }

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
    /** Ends the calls that are under way. */
    stop: () => stopping.abort(),
    /** Closes the tabs, too. */
    async close(): Promise<void> {
      const closing = Promise.allSettled([payingFetch.close(), servers.close()])
      for (const closed of (await Promise.race([closing, delay(closingMs)])) ?? [])
        if (closed.status === 'rejected') say(`a tab stays open: ${messageOf(closed.reason)}`)
      await Promise.all([folder.close(), reachable.close()])
    },
  }
}

/** A server for each client. @returns a function that ends the session. */
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

/** @returns what ended it. */
function untilEnd(isStdio: boolean): Promise<string> {
  return new Promise((resolve) => {
    // A signal that comes while tabs are being closed changes nothing.
    for (const signal of ['SIGTERM', 'SIGINT', 'SIGHUP'] as const) process.on(signal, resolve)
    if (!isStdio) return
    for (const event of ['end', 'close', 'error'])
      process.stdin.once(event, () => resolve('its input is closed'))
    // Otherwise a closed pipe would end any command of ours at once.
    process.stdout.removeAllListeners('error').on('error', () => resolve('its output is closed'))
  })
}

/** Writes to standard error, because standard output is the protocol's. */
function say(text: string): void {
  process.stderr.write(`tollkeeper mcp: ${text}\n`)
}
