/**
 * Holds receipts, one a line, against the chain; asks the gateway for its public keys and nothing else.
 *
 * Reads RPC_URL, GATEWAY_URL and, on a local chain, DEPLOYMENTS_FILE.
 */
import { readFile } from 'node:fs/promises'
import { audit } from '@tollkeeper/sdk/audit'

const { GATEWAY_URL, RPC_URL, DEPLOYMENTS_FILE } = process.env
const file = process.argv[2]
if (!file || !RPC_URL) {
  console.error('Usage: RPC_URL=https://… npm run example examples/auditor/main.ts receipts.jsonl')
  process.exit(2)
}

const lines = (await readFile(file, 'utf8')).split('\n').filter((line) => line !== '')
const { receipts } = await audit({
  // A JWS as it came, or JSON with a `receipt`.
  receipts: lines.map((line) => (line.startsWith('{') ? JSON.parse(line).receipt : line)),
  jwks: new URL('/.well-known/jwks.json', GATEWAY_URL || 'http://127.0.0.1:4020').href,
  rpcUrls: [RPC_URL],
  // For a local chain, which no table of ours knows.
  ...(DEPLOYMENTS_FILE && { deployments: JSON.parse(await readFile(DEPLOYMENTS_FILE, 'utf8')) }),
})
for (const { payment, state, detail } of receipts) console.log(payment?.paymentId, `${state}:`, detail)
process.exitCode = receipts.every(({ reconciled }) => reconciled) ? 0 : 1
