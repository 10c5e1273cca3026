import { Client } from '@modelcontextprotocol/sdk/client/index.js'
import { StreamableHTTPClientTransport } from '@modelcontextprotocol/sdk/client/streamableHttp.js'
import { readVersion } from '@tollkeeper/runtime/version'
import { fetchPaid } from '@tollkeeper/sdk/client/redirects'
import type { OpenTab } from '@tollkeeper/sdk/client/tabs'
import { type PayingMcpClient, payingMcpClient } from '@tollkeeper/sdk/mcp/payingMcpClient'
import { CallError } from './result.ts'
import type { ToolContext } from './tool.ts'

type Connection = PayingMcpClient<Client>

/** Connections to other MCP servers. Calls are paid from the budget. */
export type ForeignServers = {
  /** Returns the connection to a server. @throws {CallError} for a URL that must not be reached. */
  connect: (url: string) => Promise<Connection>
  tabs: () => Promise<OpenTab[]>
  /** Closes the tabs at all servers. If it fails at a server, it still closes the tabs at the other servers before it throws. */
  close: () => Promise<void>
}

/** Maximum number of open connections. At this number, the least recently used connection is closed to open a new one. */
const mostServers = 16
/** Maximum number of bytes to read of one response, including all events of a stream. */
const maxAnswerBytes = 33_554_432

export function createForeignServers({
  budget,
  folder,
  reachable,
}: Omit<ToolContext, 'stopping'>): ForeignServers {
  const servers = new Map<string, Promise<Connection>>()
  const boundedFetch = boundAnswers(reachable.fetch)

  async function open(url: URL): Promise<Connection> {
    const client = new Client({ name: 'tollkeeper', version: readVersion() })
    const paying = payingMcpClient(client, {
      ...budget.options,
      serverUrl: url.href,
      fetch: reachable.fetch,
      stores: folder.stores(url.href),
    })
    await client.connect(new StreamableHTTPClientTransport(url, { fetch: boundedFetch }))
    client.onclose = () => servers.delete(url.href)
    return paying
  }

  async function leave(server: Promise<Connection>): Promise<void> {
    const connection = await server.catch(() => undefined)
    try {
      await connection?.closeTabs()
    } finally {
      await connection?.close()
    }
  }

  return {
    async connect(text) {
      const url = URL.canParse(text) ? new URL(text) : undefined
      if (!url || url.username || url.password)
        throw new CallError("server: expected the http(s) URL of an MCP server's streamable HTTP")
      reachable.require(url)
      url.hash = ''
      const server = servers.get(url.href) ?? open(url)
      // Move the connection to the end, so that the least recently used one is first.
      servers.delete(url.href)
      servers.set(url.href, server)
      server.catch(() => servers.delete(url.href))
      const [oldest] = servers.values()
      if (servers.size > mostServers && oldest) {
        servers.delete(servers.keys().next().value ?? '')
        void leave(oldest).catch(() => {})
      }
      return server
    },
    async tabs() {
      const connections = await Promise.allSettled(servers.values())
      const open = connections.map((one) => (one.status === 'fulfilled' ? one.value.tabs() : []))
      return (await Promise.all(open)).flat()
    },
    async close() {
      const left = await Promise.allSettled([...servers.values()].map(leave))
      const failed = left.find(({ status }) => status === 'rejected')
      if (failed?.status === 'rejected') throw failed.reason
    },
  }
}

/**
 * Returns a fetch whose responses fail after `maxAnswerBytes`, because the MCP client holds a whole response in memory. If a request has a body, it
 * follows redirects only within the origin.
 */
function boundAnswers(fetch: typeof globalThis.fetch): typeof globalThis.fetch {
  return async (input, init) => {
    // The body of a tool call contains its payment, which a redirect would send to another origin.
    const response = init?.body
      ? await fetchPaid(fetch, { url: String(input), init, isPaidInBody: true })
      : await fetch(input, init)
    if (!response.ok || !response.body) return response
    let left = maxAnswerBytes
    const counted = new TransformStream<Uint8Array, Uint8Array>({
      transform(chunk, controller) {
        left -= chunk.length
        if (left < 0) controller.error(new CallError(`the response has more than ${maxAnswerBytes} bytes`))
        else controller.enqueue(chunk)
      },
    })
    const { status, headers } = response
    return new Response(response.body.pipeThrough(counted), { status, headers: [...headers] })
  }
}
