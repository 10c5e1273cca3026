/**
 * An MCP server (streamable HTTP) that charges for its forecast. Any client that speaks x402 or MPP over MCP can pay.
 *
 * Reads PROVIDER_ID, PROVIDER_API_KEY, PROVIDER_PORT, PRICE_USDC and GATEWAY_URL. Its tool is registered as mcp://tool/forecast.
 */
import { serve } from '@hono/node-server'
import { McpServer } from '@modelcontextprotocol/sdk/server/mcp.js'
import { WebStandardStreamableHTTPServerTransport } from '@modelcontextprotocol/sdk/server/webStandardStreamableHttp.js'
import { requirePayment } from '@tollkeeper/sdk/mcp'
import { Hono } from 'hono'
import { z } from 'zod'

const { GATEWAY_URL, PROVIDER_ID, PROVIDER_API_KEY, PROVIDER_PORT, PRICE_USDC } = process.env
const paid = requirePayment({
  gatewayUrl: GATEWAY_URL || 'http://127.0.0.1:4020',
  providerId: PROVIDER_ID || '',
  apiKey: PROVIDER_API_KEY || undefined,
  pricing: { usdcPerUnit: PRICE_USDC || '0.01' },
})

function createServer(): McpServer {
  const server = new McpServer({ name: 'weather', version: '1.0.0' })
  const config = { description: 'Weather of tomorrow', inputSchema: { city: z.string() } }
  paid(server).registerTool('forecast', config, ({ city }, { payment }) => ({
    content: [{ type: 'text', text: `${city}: 19 °C, clear. Paid by ${payment.paymentId}.` }],
  }))
  return server
}

const app = new Hono()
app.all('/mcp', async (c) => {
  // There are no sessions, so that any of several processes can answer a request.
  const transport = new WebStandardStreamableHTTPServerTransport({ enableJsonResponse: true })
  await createServer().connect(transport)
  return transport.handleRequest(c.req.raw)
})

const server = serve(
  { fetch: app.fetch, hostname: '127.0.0.1', port: Number(PROVIDER_PORT || 4030) },
  ({ port }) => console.log(`selling http://127.0.0.1:${port}/mcp`),
)
for (const signal of ['SIGINT', 'SIGTERM'] as const) {
  process.once(signal, () => server.close(() => process.exit(0)))
}
