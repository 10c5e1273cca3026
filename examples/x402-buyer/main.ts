/**
 * Buys from any x402 seller, whether it uses Tollkeeper or not.
 *
 * Reads WALLET_PRIVATE_KEY, GATEWAY_URL, NETWORK and, on `localhost`, USDC_ADDRESS.
 */
import { ClientError, createClient, type NetworkName } from '@tollkeeper/sdk'

const { GATEWAY_URL, NETWORK, WALLET_PRIVATE_KEY, USDC_ADDRESS } = process.env
const url = process.argv[2]
if (!url || !WALLET_PRIVATE_KEY) {
  console.error('Usage: WALLET_PRIVATE_KEY=0x… node main.ts <url>')
  process.exit(2)
}

const client = createClient({
  gatewayUrl: GATEWAY_URL || 'http://127.0.0.1:4020',
  network: (NETWORK || 'base-sepolia') as NetworkName,
  walletPrivateKey: WALLET_PRIVATE_KEY,
  limits: { perPayment: '0.10', perDay: '5' },
  otherSellers: true,
  ...(USDC_ADDRESS && { usdcAddress: USDC_ADDRESS as `0x${string}` }),
})

try {
  const { data, paymentId, sellerReport } = await client.request(url)
  console.log({ data, paymentId, transaction: sellerReport?.transaction })
} catch (error) {
  if (!(error instanceof ClientError)) throw error
  // With the outcome `unknown`, the seller has received the payment and may still settle it. `advice` says what to do.
  console.error(`${error.message} (${error.code}, ${error.outcome})`, error.advice ?? '')
  process.exitCode = 1
}
