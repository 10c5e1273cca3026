import type { Address } from 'viem'
import { ProtocolError } from './errors.ts'
import { minimumPrice } from './tier.ts'

/** The name of a network: the six of conformance 1-20, and `localhost`, the chain of development. */
export type NetworkName =
  | 'base'
  | 'base-sepolia'
  | 'ethereum'
  | 'ethereum-sepolia'
  | 'polygon'
  | 'polygon-amoy'
  | 'localhost'

/** What the protocol needs to know of a chain. */
export type Network = {
  name: NetworkName
  chainId: number
  /** CAIP-2 id, as x402 v2 names networks. */
  caip2: `eip155:${number}`
  /** Circle's USDC, lower-case; null where it is deployed anew each time (`localhost`). */
  usdc: Address | null
  /** The token's EIP-712 domain name and version. Circle's test deployments are named `USDC`, not `USD Coin`. */
  eip712: { name: string; version: string }
  /** Blocks on top of a settlement before it counts as confirmed. */
  confirmations: number
  /** Has an L1 data fee (OP stack). */
  isOpStack: boolean
  /** Chainlink aggregator for the USD price of the chain's gas token: ETH, or POL on Polygon. Lower-case. */
  ethUsdFeed?: Address
  explorerUrl?: string
  /** Base units. */
  minimumPrice: bigint
  testnet: boolean
}

const usdCoin = { name: 'USD Coin', version: '2' }
const usdc = { name: 'USDC', version: '2' }

/**
 * The table of networks, by name (conformance 1-20).
 *
 * Sources: Circle's list of USDC contracts, Chainlink's list of data feeds, each token's own `name()` and `version()`.
 * Every process compares the domain with the chain at start and refuses to run on a mismatch.
 *
 * @example
 * import { networks } from '@tollkeeper/sdk'
 *
 * console.log(networks.base.chainId, networks.base.usdc)
 * // 8453 0x833589fcd6edb6e08f4c7c32d4f71b54bda02913
 */
export const networks: Readonly<Record<NetworkName, Network>> = {
  base: networkOf('base', 8453, {
    usdc: '0x833589fcd6edb6e08f4c7c32d4f71b54bda02913',
    eip712: usdCoin,
    confirmations: 10,
    isOpStack: true,
    ethUsdFeed: '0x71041dddad3595f9ced3dccfbe3d1f4b0a16bb70',
    explorerUrl: 'https://basescan.org',
    testnet: false,
  }),
  'base-sepolia': networkOf('base-sepolia', 84532, {
    usdc: '0x036cbd53842c5426634e7929541ec2318f3dcf7e',
    eip712: usdc,
    confirmations: 10,
    isOpStack: true,
    ethUsdFeed: '0x4adc67696ba383f43dd60a9e78f2c97fbbfc7cb1',
    explorerUrl: 'https://sepolia.basescan.org',
    testnet: true,
  }),
  ethereum: networkOf('ethereum', 1, {
    usdc: '0xa0b86991c6218b36c1d19d4a2e9eb0ce3606eb48',
    eip712: usdCoin,
    confirmations: 12,
    isOpStack: false,
    ethUsdFeed: '0x5f4ec3df9cbd43714fe2740f5e3616155c5b8419',
    explorerUrl: 'https://etherscan.io',
    testnet: false,
  }),
  'ethereum-sepolia': networkOf('ethereum-sepolia', 11155111, {
    usdc: '0x1c7d4b196cb0c7b01d743fbc6116a902379c7238',
    eip712: usdc,
    confirmations: 12,
    isOpStack: false,
    ethUsdFeed: '0x694aa1769357215de4fac081bf1f309adc325306',
    explorerUrl: 'https://sepolia.etherscan.io',
    testnet: true,
  }),
  polygon: networkOf('polygon', 137, {
    usdc: '0x3c499c542cef5e3811e1192ce70d8cc03d5c3359',
    eip712: usdCoin,
    confirmations: 32,
    isOpStack: false,
    ethUsdFeed: '0xab594600376ec9fd91f8e885dadf0ce036862de0',
    explorerUrl: 'https://polygonscan.com',
    testnet: false,
  }),
  'polygon-amoy': networkOf('polygon-amoy', 80002, {
    usdc: '0x41e94eb019c0762f9bfcf9fb1e58725bfb0e7582',
    eip712: usdc,
    confirmations: 32,
    isOpStack: false,
    ethUsdFeed: '0x001382149eba3441043c1c66972b4772963f5d43',
    explorerUrl: 'https://amoy.polygonscan.com',
    testnet: true,
  }),
  localhost: networkOf('localhost', 31337, {
    usdc: null,
    eip712: usdCoin,
    confirmations: 1,
    isOpStack: false,
    testnet: true,
  }),
}

/**
 * The names of all networks, in the table's order.
 *
 * @example
 * import { networkNames } from '@tollkeeper/sdk'
 *
 * console.log(networkNames.join(' '))
 * // base base-sepolia ethereum ethereum-sepolia polygon polygon-amoy localhost
 */
export const networkNames = Object.keys(networks) as NetworkName[]

/** Those on which batches settle unless others are switched on (conformance 1-22), the recommended one first. */
export const defaultNetworks = ['base', 'base-sepolia'] as const satisfies NetworkName[]

function networkOf(
  name: NetworkName,
  chainId: number,
  facts: Omit<Network, 'name' | 'chainId' | 'caip2' | 'minimumPrice'>,
): Network {
  return { name, chainId, caip2: `eip155:${chainId}`, minimumPrice, ...facts }
}

const byChainId = new Map(Object.values(networks).map((network) => [network.chainId, network]))

/**
 * Tells whether something that was received is the name of a network.
 *
 * @example
 * import { isNetworkName } from '@tollkeeper/sdk/protocol'
 *
 * console.log(isNetworkName('base'), isNetworkName('solana'))
 * // true false
 */
export function isNetworkName(name: unknown): name is NetworkName {
  return typeof name === 'string' && Object.hasOwn(networks, name)
}

/**
 * Finds a network by its name.
 *
 * @throws {ProtocolError} `unknown_network`
 * @example
 * import { networkByName } from '@tollkeeper/sdk/protocol'
 *
 * console.log(networkByName('base').caip2)
 * // eip155:8453
 */
export function networkByName(name: string): Network {
  if (typeof name !== 'string' || !isNetworkName(name)) {
    const got = typeof name === 'string' ? `"${name.slice(0, 80)}"` : String(name)
    throw new ProtocolError('unknown_network', `Expected one of ${networkNames.join(', ')}, got ${got}`)
  }
  return networks[name]
}

/**
 * Finds a network by its chain id.
 *
 * @throws {ProtocolError} `unknown_network`
 * @example
 * import { networkByChainId } from '@tollkeeper/sdk/protocol'
 *
 * console.log(networkByChainId(84532).name)
 * // base-sepolia
 */
export function networkByChainId(chainId: number): Network {
  const network = byChainId.get(chainId)
  if (!network) throw new ProtocolError('unknown_network', `No network has chain id ${chainId}`)
  return network
}
