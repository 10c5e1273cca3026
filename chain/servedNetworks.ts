import { type Address, createPublicClient, fallback, type Hex, http, type PublicClient } from 'viem'
import { networkVariable } from '#process/variables'
import { usdcAbi } from '#protocol/abi/usdc'
import type { Deployment } from '#protocol/deployments'
import { domainSeparator, eip712Domain } from '#protocol/eip3009'
import type { Network } from '#protocol/networks'
import type { NetworkSettings } from './networkSettings.ts'

/** A network whose chain was looked at and found to be what our table says. */
export type ServedNetwork = {
  network: Network
  deployment: Deployment
  /** USDC there, lower-case. */
  token: Address
  /** Reads through every RPC URL in turn. */
  client: PublicClient
  /** One reader an RPC URL, for what must be asked or told everywhere. */
  clients: PublicClient[]
  /** The token's own `DOMAIN_SEPARATOR()`, equal to the one computed from our table. */
  domainSeparator: Hex
}

export type OpenServedNetworksOptions = {
  /** Milliseconds that one RPC call may take; default 10,000. */
  timeoutMs?: number
  /** Milliseconds between two looks at a chain's head; default 1,000. */
  pollingIntervalMs?: number
}

/**
 * Connects to each network and refuses it unless chain id, the token's EIP-712 domain and the BatchSettlement contract
 * are what our tables say: a wrong domain would turn every signature into a worthless one.
 *
 * @throws Error that names the network, what was expected, what the chain answered and which variable to look at.
 */
export async function openServedNetworks(
  settings: NetworkSettings[],
  options: OpenServedNetworksOptions = {},
): Promise<ServedNetwork[]> {
  return Promise.all(settings.map((one) => openServedNetwork(one, options)))
}

async function openServedNetwork(
  { network, deployment, rpcUrls }: NetworkSettings,
  { timeoutMs = 10_000, pollingIntervalMs = 1_000 }: OpenServedNetworksOptions,
): Promise<ServedNetwork> {
  // Calls of one tick travel as one HTTP request.
  const transports = rpcUrls.map((url) =>
    http(url, { timeout: timeoutMs, batch: { batchSize: 200, wait: 0 } }),
  )
  const shared = { pollingInterval: pollingIntervalMs, cacheTime: 0 }
  const clients = transports.map((transport) => createPublicClient({ ...shared, transport }))
  const client = createPublicClient({ ...shared, transport: fallback(transports) })

  const token = deployment.usdc.toLowerCase() as Address
  const domain = eip712Domain(network, token)
  const [chainId, name, version, separator, code] = await Promise.all([
    client.getChainId(),
    client.readContract({ address: token, abi: usdcAbi, functionName: 'name' }),
    client.readContract({ address: token, abi: usdcAbi, functionName: 'version' }),
    client.readContract({ address: token, abi: usdcAbi, functionName: 'DOMAIN_SEPARATOR' }),
    client.getCode({ address: deployment.batchSettlement }),
  ]).catch((error: unknown) => {
    const reason = error instanceof Error && 'shortMessage' in error ? error.shortMessage : String(error)
    throw new Error(
      `${network.name}: could not read the chain and its USDC at ${token} (${reason}); ` +
        `check ${networkVariable('RPC_URL', network.name)} and DEPLOYMENTS_FILE`,
    )
  })

  const expected = domainSeparator(domain)
  requireEqual(network, 'chain id', network.chainId, chainId)
  requireEqual(network, `name() of USDC at ${token}`, domain.name, name)
  requireEqual(network, `version() of USDC at ${token}`, domain.version, version)
  requireEqual(network, `DOMAIN_SEPARATOR() of USDC at ${token}`, expected, separator)
  if (code === undefined) {
    throw new Error(
      `${network.name}: there is no BatchSettlement at ${deployment.batchSettlement}; ` +
        `deploy it (npm run deploy -- --network ${network.name}) or correct DEPLOYMENTS_FILE`,
    )
  }
  return { network, deployment, token, client, clients, domainSeparator: separator }
}

function requireEqual(network: Network, what: string, expected: string | number, got: string | number): void {
  if (expected === got) return
  throw new Error(
    `${network.name}: ${what} should be ${expected}, the chain says ${got}; ` +
      `check ${networkVariable('RPC_URL', network.name)} and DEPLOYMENTS_FILE`,
  )
}
