/** Pays for one request: `WALLET_PRIVATE_KEY=0x… npm run buy -- http://127.0.0.1:4030/forecast` */
import { createClient, type NetworkName } from '@tollkeeper/sdk'

const { GATEWAY_URL, NETWORK, WALLET_PRIVATE_KEY, USDC_ADDRESS } = process.env
const url = process.argv[2]
if (!url) throw new Error('Give the URL of the resource to buy')
if (!WALLET_PRIVATE_KEY)
  throw new Error('WALLET_PRIVATE_KEY: expected the key of a wallet with USDC, but it is not set')

const client = createClient({
  gatewayUrl: GATEWAY_URL ?? 'http://127.0.0.1:4020',
  network: (NETWORK ?? 'localhost') as NetworkName,
  walletPrivateKey: WALLET_PRIVATE_KEY,
  maxPaymentUsdc: '0.10',
  debug: true,
  ...(USDC_ADDRESS && { usdcAddress: USDC_ADDRESS as `0x${string}` }),
})

const { data, receipt, paymentId } = await client.request(url)
console.log({ data, receipt, paymentId })
