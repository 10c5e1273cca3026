/**
 * Calls a tool of an MCP server, and pays for it.
 *
 * Reads WALLET_PRIVATE_KEY, GATEWAY_URL, NETWORK, RECEIPT_FILE and, on `localhost`, USDC_ADDRESS.
 */
import { Client } from '@modelcontextprotocol/sdk/client/index.js'
import { StreamableHTTPClientTransport } from '@modelcontextprotocol/sdk/client/streamableHttp.js'
import { ClientError, type NetworkName } from '@tollkeeper/sdk'
import { openReceiptFile } from '@tollkeeper/sdk/files'
import { payingMcpClient } from '@tollkeeper/sdk/mcp'

const { GATEWAY_URL, NETWORK, WALLET_PRIVATE_KEY, USDC_ADDRESS, RECEIPT_FILE } = process.env
const [serverUrl, name, ...given] = process.argv.slice(2)
if (!serverUrl || !name || !WALLET_PRIVATE_KEY) {
  console.error('Usage: WALLET_PRIVATE_KEY=0x… node main.ts <server> <tool> [<name>=<value> …]')
  process.exit(2)
}

const receipts = RECEIPT_FILE ? await openReceiptFile(RECEIPT_FILE) : undefined
const client = payingMcpClient(new Client({ name: 'buyer', version: '1.0.0' }), {
  gatewayUrl: GATEWAY_URL || 'http://127.0.0.1:4020',
  network: (NETWORK || 'base-sepolia') as NetworkName,
  walletPrivateKey: WALLET_PRIVATE_KEY,
  limits: { perPayment: '0.10', perDay: '5' },
  serverUrl,
  ...(receipts && { onReceipt: receipts.keep }),
  ...(USDC_ADDRESS && { usdcAddress: USDC_ADDRESS as `0x${string}` }),
})

try {
  await client.connect(new StreamableHTTPClientTransport(new URL(serverUrl)))
  const { content } = await client.callTool({
    name,
    arguments: Object.fromEntries(given.map((one) => one.split('='))),
  })
  console.log(content)
  // The purchases are on a tab, which settles after it is closed.
  await client.closeTabs()
} catch (error) {
  if (!(error instanceof ClientError)) throw error
  console.error(`${error.message} (${error.code})`)
  process.exitCode = 1
} finally {
  await client.close()
  await receipts?.close()
}
