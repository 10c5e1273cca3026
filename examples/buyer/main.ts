/**
 * Pays for one request: `WALLET_PRIVATE_KEY=0x… npm run buy -- http://127.0.0.1:4030/forecast`
 *
 * Reads WALLET_PRIVATE_KEY, GATEWAY_URL, NETWORK, RECEIPT_FILE and, on `localhost`, USDC_ADDRESS.
 */
import { ClientError, createClient, type NetworkName } from '@tollkeeper/sdk'
import { openReceiptFile } from '@tollkeeper/sdk/files'

const { GATEWAY_URL, NETWORK, WALLET_PRIVATE_KEY, USDC_ADDRESS, RECEIPT_FILE } = process.env
const url = process.argv[2]
if (!url || !WALLET_PRIVATE_KEY) {
  console.error('Usage: WALLET_PRIVATE_KEY=0x… npm run buy -- <url>; npm start prints one that works')
  process.exit(2)
}

const receipts = RECEIPT_FILE ? await openReceiptFile(RECEIPT_FILE) : undefined
const client = createClient({
  gatewayUrl: GATEWAY_URL || 'http://127.0.0.1:4020',
  network: (NETWORK || 'base-sepolia') as NetworkName,
  walletPrivateKey: WALLET_PRIVATE_KEY,
  limits: { perPayment: '0.10', perDay: '5' },
  debug: true,
  ...(receipts && { onReceipt: receipts.keep }),
  ...(USDC_ADDRESS && { usdcAddress: USDC_ADDRESS as `0x${string}` }),
})

try {
  const { data, receipt, paymentId } = await client.request(url)
  console.log({ data, receipt, paymentId })
} catch (error) {
  if (!(error instanceof ClientError)) throw error
  console.error(`${error.message} (${error.code})`)
  process.exitCode = 1
} finally {
  await receipts?.close()
}
