import { type NetworkName, networkByName, networkNames } from '@tollkeeper/sdk/protocol/networks'
import { createPublicClient, http } from 'viem'
import {
  arbitrum,
  arbitrumSepolia,
  avalanche,
  avalancheFuji,
  base,
  baseSepolia,
  hardhat,
  mainnet,
  optimism,
  optimismSepolia,
  polygon,
  polygonAmoy,
  sepolia,
} from 'viem/chains'
import { CliError } from '../terminal/cliError.ts'

const chains = [
  ...[base, baseSepolia, mainnet, sepolia, polygon, polygonAmoy, arbitrum, arbitrumSepolia],
  ...[optimism, optimismSepolia, avalanche, avalancheFuji, hardhat],
]
const timeoutMs = 5_000

/**
 * Returns the URL of a public node of a network; undefined for a network from a file. Such a node is free, but strictly limits the number of calls.
 */
export function findPublicNode(network: NetworkName): string | undefined {
  const { chainId } = networkByName(network)
  return chains.find(({ id }) => id === chainId)?.rpcUrls.default.http[0]
}

/**
 * Checks that a node serves the network.
 *
 * @returns false if the node isn't responding, which isn't an error, because it may respond later.
 * @throws {CliError} `other_chain`
 */
export async function checkNode(network: NetworkName, url: string): Promise<boolean> {
  const client = createPublicClient({ transport: http(url, { timeout: timeoutMs, retryCount: 0 }) })
  const chainId = await client.getChainId().catch(() => undefined)
  if (chainId === undefined) return false
  const { chainId: expected } = networkByName(network)
  if (chainId === expected) return true
  const other = networkNames.find((name) => networkByName(name).chainId === chainId)
  throw new CliError(
    'other_chain',
    `--rpc: expected a node of ${network} (chain ${expected}), got one of ${other ?? 'another network'} (chain ${chainId})`,
  )
}
