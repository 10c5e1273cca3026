import { once } from 'node:events'
import type { Server as HttpServer } from 'node:http'
import { serve } from '@hono/node-server'
import { Client } from '@modelcontextprotocol/sdk/client/index.js'
import { StreamableHTTPClientTransport } from '@modelcontextprotocol/sdk/client/streamableHttp.js'
import { InMemoryTransport } from '@modelcontextprotocol/sdk/inMemory.js'
import type { McpServer } from '@modelcontextprotocol/sdk/server/mcp.js'
import type { Transport } from '@modelcontextprotocol/sdk/shared/transport.js'
import type { CallToolResult } from '@modelcontextprotocol/sdk/types.js'
import { loopback, reservePort } from '@tollkeeper/runtime/port'
import { type PayingMcpOptions, payingMcpClient } from '@tollkeeper/sdk/mcp/payingMcpClient'
import type { ToolGateOptions } from '@tollkeeper/sdk/mcp/toolGate'
import { keccak256, toHex } from 'viem'
import { call, startGateway, type TestGateway } from './gateway.ts'

/** A real gateway behind a socket, as the SDK calls it. The socket's URL is the gateway's issuer. */
export type ServedGateway = TestGateway & { url: string }

export async function serveGateway(
  settings: Parameters<typeof startGateway>[0] = {},
): Promise<ServedGateway> {
  const port = await reservePort()
  const url = `http://${loopback}:${port}`
  const gateway = await startGateway({ ...settings, issuer: url })
  const server = serve({ fetch: gateway.app.fetch, port, hostname: loopback }) as HttpServer
  await once(server, 'listening')
  return {
    ...gateway,
    url,
    close: async () => {
      server.closeAllConnections()
      server.close()
      await gateway.close()
    },
  }
}

let sellers = 0

/**
 * Registers a provider that sells tools, given by their endpoints' URLs and prices, and returns its
 * middleware's options.
 */
export async function registerTools(
  { app, url }: ServedGateway,
  tools: Record<string, string>,
): Promise<Omit<ToolGateOptions, 'pricing'> & { apiKey: string; endpointIds: Record<string, string> }> {
  const n = ++sellers
  type Registered = { providerId: string; apiKey: string; endpointId: string }
  const post = async (path: string, json: object, key?: string): Promise<Registered> => {
    const { status, body } = await call<Registered>(app, 'POST', path, { json, ...(key && { key }) })
    if (status >= 300) throw new Error(`POST ${path}: ${JSON.stringify(body)}`)
    return body
  }
  const { providerId, apiKey } = await post('/providers', { name: `Tools ${n}` })
  const address = `0x${keccak256(toHex(`tools ${n}`)).slice(26)}`
  await post(`/providers/${providerId}/wallets`, { network: 'localhost', address }, apiKey)
  const endpointIds: Record<string, string> = {}
  for (const [resource, usdcPerUnit] of Object.entries(tools)) {
    const endpoint = { url: resource, pricing: { usdcPerUnit }, network: 'localhost' }
    const { endpointId } = await post(`/providers/${providerId}/endpoints`, endpoint, apiKey)
    endpointIds[resource] = endpointId
  }
  return { gatewayUrl: url, providerId, apiKey, warn: () => {}, endpointIds }
}

/** Connects a client of the SDK to a server of the SDK. `tap` sees what the client sends. */
export async function connectTo(
  server: Pick<McpServer, 'connect'>,
  options: { capabilities?: object; tap?: (transport: Transport) => Transport } = {},
): Promise<Client> {
  const [near, far] = InMemoryTransport.createLinkedPair()
  const client = new Client(
    { name: 'test', version: '1.0.0' },
    { capabilities: (options.capabilities ?? {}) as never },
  )
  await Promise.all([server.connect(far), client.connect(options.tap?.(near) ?? near)])
  return client
}

/** Returns the first text of a result. */
export function textOf(result: unknown): string {
  const [first] = (result as CallToolResult).content
  return first?.type === 'text' ? first.text : ''
}

/** Buys a forecast for Lisbon over MCP's streamable HTTP transport, with a separate payment. */
export async function buyForecast(options: PayingMcpOptions & { serverUrl: string }): Promise<unknown> {
  const client = payingMcpClient(new Client({ name: 'test', version: '1.0.0' }), {
    limits: { perPayment: '0.10' },
    tabs: false,
    ...options,
  })
  await client.connect(new StreamableHTTPClientTransport(new URL(options.serverUrl)) as Transport)
  try {
    return await client.callTool({ name: 'forecast', arguments: { city: 'Lisbon' } })
  } finally {
    await client.close()
  }
}
