/**
 * Runs a third-party MCP client that pays, unmodified: `node mcpBuyers.js <name> <url>` calls the tool `weather` at the URL,
 * and prints the result as one line of JSON.
 */
import { Client } from '@modelcontextprotocol/sdk/client/index.js'
import { StreamableHTTPClientTransport } from '@modelcontextprotocol/sdk/client/streamableHttp.js'
import { privateKeyToAccount } from 'viem/accounts'

const account = privateKeyToAccount(process.env.PRIVATE_KEY)
const [who, url] = process.argv.slice(2)
const transport = () => new StreamableHTTPClientTransport(new URL(url))

async function connect() {
  const client = new Client({ name: who, version: '1.0.0' })
  await client.connect(transport())
  return client
}

const call = { name: 'weather', arguments: {} }

const buyers = {
  async agents() {
    const { withX402Client } = await import('agents/x402')
    const paying = withX402Client(await connect(), { account, network: 'eip155:84532' })
    const result = await paying.callTool(null, call)
    return { result, proof: result._meta?.['x402/payment-response'] }
  },
  /** Does what a model would do: reads the price, requests the payment, and calls the tool again. */
  async 'x402-mcp'() {
    const { experimental_createMCPClient } = await import('ai')
    const { withPayment } = await import('x402-mcp')
    const client = await experimental_createMCPClient({ transport: transport() })
    const paying = await withPayment(client, { account, network: 'base-sepolia' })
    const tools = await paying.tools()
    const asked = await tools.weather.execute({}, {})
    const required = asked.content.map(({ text }) => JSON.parse(text)).find((one) => one.x402Version === 1)
    const { paymentAuthorization } = await tools.generatePaymentAuthorization.execute({
      paymentRequirements: required.accepts[0],
    })
    const result = await tools.weather.execute({ paymentAuthorization }, {})
    return { result, proof: result._meta?.['x402.payment-response'] }
  },
  async mppx() {
    const { evm } = await import('mppx/client')
    const { McpClient } = await import('mppx/mcp/client')
    const methods = [evm.charge({ account, authorization: { name: 'USDC', version: '2' } })]
    const result = await McpClient.wrap(await connect(), { methods }).callTool(call)
    return { result, proof: result.receipt }
  },
}

const outcome = await buyers[who]().catch((error) => ({ error: String(error?.message ?? error) }))
console.log(`OUTCOME ${JSON.stringify(outcome)}`)
process.exit()
