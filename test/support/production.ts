import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'

/**
 * Returns the environment of someone who also runs a gateway on Base Sepolia. All its URLs lead to a server that counts
 * connections: a local chain that simulates that network must not connect to any of them.
 */
export async function startProduction() {
  let connections = 0
  const server = createServer((_, response) => response.writeHead(500).end())
  server.on('connection', () => connections++)
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
  const { port } = server.address() as AddressInfo
  const url = `http://127.0.0.1:${port}`
  return {
    env: {
      NETWORKS: 'base,base-sepolia',
      RPC_URL_BASE: url,
      RPC_URL_BASE_SEPOLIA: url,
      NODE_ENV: 'production',
      DEPLOYMENTS_FILE: '/nowhere/deployments.json',
      TABS_DATABASE_URL: `postgres://127.0.0.1:${port}/tabs`,
      KEEPER_KEY_FILE: '/nowhere/keeper.key',
      KEEPER_GATEWAY_URL: url,
      SMTP_URL: `smtp://127.0.0.1:${port}`,
      PLATFORM_WALLET: `0x${'99'.repeat(20)}`,
      PLATFORM_WALLETS: `0x${'98'.repeat(20)}`,
    },
    calls: () => connections,
    close: () => void server.close(),
  }
}
