/**
 * Runs a third-party seller of MCP tools, unmodified, with our facilitator's URL: `node mcpSellers.js <name>`. Prints the
 * URL at which it sells the tool `weather`.
 */
import { createServer } from 'node:http'
import { getRequestListener } from '@hono/node-server'
import { McpServer } from '@modelcontextprotocol/sdk/server/mcp.js'
import { StreamableHTTPServerTransport } from '@modelcontextprotocol/sdk/server/streamableHttp.js'

const { FACILITATOR_URL, KEYED_FACILITATOR_URL, API_KEY, PAY_TO, USDC_ADDRESS } = process.env
const createAuthHeaders = async () => {
  const headers = { Authorization: `Bearer ${API_KEY}` }
  return { verify: headers, settle: headers, supported: headers }
}
const facilitator = { url: FACILITATOR_URL, createAuthHeaders }
const sunny = () => ({ content: [{ type: 'text', text: 'sunny' }] })

const sellers = {
  async agents() {
    const { withX402 } = await import('agents/x402')
    return serve((server) =>
      withX402(server, { network: 'base-sepolia', recipient: PAY_TO, facilitator }).paidTool(
        ...['weather', 'The weather', 0.01, {}, {}, sunny],
      ),
    )
  },
  async 'x402-mcp'() {
    const { createPaidMcpHandler } = await import('x402-mcp')
    const handler = createPaidMcpHandler(
      (server) => server.paidTool('weather', 'The weather', { price: 0.01 }, {}, {}, async () => sunny()),
      {},
      { recipient: PAY_TO, facilitator, network: 'base-sepolia' },
    )
    return getRequestListener(handler)
  },
  async mppx() {
    const { evm, Mppx } = await import('mppx/server')
    const { Transport } = await import('mppx/mcp/server')
    const payment = Mppx.create({
      methods: [
        {
          ...evm.charge({
            currency: USDC_ADDRESS,
            recipient: PAY_TO,
            chainId: 84532,
            decimals: 6,
            authorization: { name: 'USDC', version: '2' },
            // mppx has no option for headers, so the key is in the URL.
            x402: { facilitator: KEYED_FACILITATOR_URL },
          }),
          transport: undefined,
        },
      ],
      realm: 'weather.example',
      secretKey: 'a secret of at least thirty-two bytes',
      transport: Transport.mcpSdk(),
    })
    return serve((server) =>
      server.registerTool('weather', { description: 'The weather' }, async (extra) => {
        const result = await payment.charge({ amount: '0.01' })(extra)
        if (result.status === 402) throw result.challenge
        return result.withReceipt(sunny())
      }),
    )
  },
}

/** Creates a server for each request, as the SDK's stateless example does. */
function serve(register) {
  return async (request, response) => {
    const server = new McpServer({ name: 'weather', version: '1.0.0' })
    register(server)
    const transport = new StreamableHTTPServerTransport({ sessionIdGenerator: undefined })
    response.on('close', () => void server.close())
    await server.connect(transport)
    await transport.handleRequest(request, response)
  }
}

const server = createServer(await sellers[process.argv[2]]())
server.listen(0, '127.0.0.1', () => console.log(`selling http://127.0.0.1:${server.address().port}/mcp`))
