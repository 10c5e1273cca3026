import type { Address } from 'viem'
import { ProtocolError } from './errors.ts'
import { minimumPrice } from './tier.ts'

/** The name of a network that this version ships. The first six are those of conformance 1-20; `localhost` is for development. */
export type ShippedNetworkName =
  | 'base'
  | 'base-sepolia'
  | 'ethereum'
  | 'ethereum-sepolia'
  | 'polygon'
  | 'polygon-amoy'
  | 'arbitrum'
  | 'arbitrum-sepolia'
  | 'optimism'
  | 'optimism-sepolia'
  | 'avalanche'
  | 'avalanche-fuji'
  | 'localhost'

/** The name of a network: a shipped one, or one that `defineNetwork` added. Other names are rejected at runtime. */
export type NetworkName = ShippedNetworkName | (string & {})

/**
 * How a chain charges for a transaction. `plain`: the used gas times its price. `op-stack`: also a fee for publishing the transaction's data on L1.
 * `arbitrum`: the used gas includes the cost of the data on L1.
 */
export type GasModel = 'plain' | 'op-stack' | 'arbitrum'

/** The facts about a chain that the protocol needs. */
export type Network = {
  name: NetworkName
  chainId: number
  /** CAIP-2 id, which x402 v2 uses as the network's name. */
  caip2: `eip155:${number}`
  /** Address of Circle's USDC, lower-case. Null if USDC is deployed again on each start (`localhost`). */
  usdc: Address | null
  /** Name and version of the token's EIP-712 domain. Circle's test deployments are named `USDC`, not `USD Coin`. */
  eip712: { name: string; version: string }
  /** Number of confirmations after which a settlement counts as confirmed. */
  confirmations: number
  /** Time in ms between two blocks. */
  blockTimeMs: number
  gasModel: GasModel
  /** Symbol of the coin that pays for gas. */
  gasToken: string
  /**
   * Chainlink aggregator with the USD price of the gas token, lower-case. packages/chain/priceFeeds.ts has the aggregators of the shipped networks.
   */
  priceFeed?: Address
  /** USD price of one gas token in USDC base units. Used if there is no price feed or its price is stale. Default: the operator's `ETH_USD`. */
  gasTokenUsd?: bigint
  /**
   * Maximum price of a gas unit that the keeper offers, in wei, unless its operator sets another one. Default: the value in
   * packages/chain/gasLimits.ts.
   */
  maxFeePerGas?: bigint
  /**
   * Maximum gas of a batch. The keeper splits a larger batch. Set if a block has less gas than the 16.7 million that EIP-7825 allows for a
   * transaction.
   */
  batchGas?: bigint
  explorerUrl?: string
  /** Minimum price of a single payment in USDC base units. */
  minimumPrice: bigint
  testnet: boolean
}

type Facts = Omit<Network, 'name' | 'chainId' | 'caip2' | 'minimumPrice'>

const usdCoin = { name: 'USD Coin', version: '2' }
const usdc = { name: 'USDC', version: '2' }

/** Chains of the OP stack have a block every two seconds. A block that is 20 seconds old counts as sufficiently final. */
const opStack = { confirmations: 10, blockTimeMs: 2_000, gasModel: 'op-stack', gasToken: 'ETH' } as const
const ethereum = { confirmations: 12, blockTimeMs: 12_000, gasModel: 'plain', gasToken: 'ETH' } as const
const polygon = {
  confirmations: 32,
  blockTimeMs: 2_000,
  gasModel: 'plain',
  gasToken: 'POL',
} as const
/** Arbitrum has four blocks per second. The confirmations take 20 seconds, as on the OP stack. */
const arbitrum = {
  eip712: usdCoin,
  confirmations: 80,
  blockTimeMs: 250,
  gasModel: 'arbitrum',
  gasToken: 'ETH',
} as const
/** An accepted block is final on Avalanche. More than one confirmation is needed only because a load balancer may use a node that lags behind. */
const avalanche = {
  eip712: usdCoin,
  confirmations: 6,
  blockTimeMs: 1_700,
  gasModel: 'plain',
  gasToken: 'AVAX',
  // A block's gas limit follows the demand (ACP-176). It is lower than on other chains, so batches must be smaller.
  batchGas: 8_000_000n,
} as const

/**
 * The table of networks by name (conformance 1-20), including networks that `defineNetwork` added in this process.
 *
 * Sources: Circle's list of USDC contracts, and each token's own `name()` and `version()`. At startup, every process compares the domain with the
 * chain, and refuses to run if they differ.
 *
 * @example
 * import { networks } from '@tollkeeper/sdk'
 *
 * console.log(networks.base.chainId, networks.base.usdc)
 * // 8453 0x833589fcd6edb6e08f4c7c32d4f71b54bda02913
 */
export const networks: Readonly<Record<ShippedNetworkName, Network> & { [name: string]: Network }> = {
  base: networkOf('base', 8453, {
    ...opStack,
    usdc: '0x833589fcd6edb6e08f4c7c32d4f71b54bda02913',
    eip712: usdCoin,
    explorerUrl: 'https://basescan.org',
    testnet: false,
  }),
  'base-sepolia': networkOf('base-sepolia', 84532, {
    ...opStack,
    usdc: '0x036cbd53842c5426634e7929541ec2318f3dcf7e',
    eip712: usdc,
    explorerUrl: 'https://sepolia.basescan.org',
    testnet: true,
  }),
  ethereum: networkOf('ethereum', 1, {
    ...ethereum,
    usdc: '0xa0b86991c6218b36c1d19d4a2e9eb0ce3606eb48',
    eip712: usdCoin,
    explorerUrl: 'https://etherscan.io',
    testnet: false,
  }),
  'ethereum-sepolia': networkOf('ethereum-sepolia', 11155111, {
    ...ethereum,
    usdc: '0x1c7d4b196cb0c7b01d743fbc6116a902379c7238',
    eip712: usdc,
    explorerUrl: 'https://sepolia.etherscan.io',
    testnet: true,
  }),
  polygon: networkOf('polygon', 137, {
    ...polygon,
    usdc: '0x3c499c542cef5e3811e1192ce70d8cc03d5c3359',
    eip712: usdCoin,
    explorerUrl: 'https://polygonscan.com',
    testnet: false,
  }),
  'polygon-amoy': networkOf('polygon-amoy', 80002, {
    ...polygon,
    usdc: '0x41e94eb019c0762f9bfcf9fb1e58725bfb0e7582',
    eip712: usdc,
    explorerUrl: 'https://amoy.polygonscan.com',
    testnet: true,
  }),
  // The address comes from Circle's list. The domain comes from x402-foundation/x402#1877, whose author hashed the domain to check it, and from
  // DROOdotFOO/raxol#261, which read `name()` (2026-11-29).
  arbitrum: networkOf('arbitrum', 42161, {
    ...arbitrum,
    usdc: '0xaf88d065e77c8cc2239327c5edb3a432268e5831',
    explorerUrl: 'https://arbiscan.io',
    testnet: false,
  }),
  // The sources are the same as for `arbitrum` (2026-11-29). This is the only test deployment whose name is `USD Coin`.
  'arbitrum-sepolia': networkOf('arbitrum-sepolia', 421614, {
    ...arbitrum,
    usdc: '0x75faf114eafb1bdbe2f0316df893fd58ce46aa4d',
    explorerUrl: 'https://sepolia.arbiscan.io',
    testnet: true,
  }),
  // The address comes from Circle's list, and the domain from DROOdotFOO/raxol#261 and peanutprotocol/peanut-sdk#78 (2026-11-29).
  optimism: networkOf('optimism', 10, {
    ...opStack,
    usdc: '0x0b2c639c533813f4aa9d7837caf62653d097ff85',
    eip712: usdCoin,
    explorerUrl: 'https://optimistic.etherscan.io',
    testnet: false,
  }),
  // The address comes from Circle's list, and the domain from DROOdotFOO/raxol#261 and the table of the crate r402 (2026-11-29).
  'optimism-sepolia': networkOf('optimism-sepolia', 11155420, {
    ...opStack,
    usdc: '0x5fd84259d66cd46123540766be93dfe6d43130d7',
    eip712: usdc,
    explorerUrl: 'https://optimism-sepolia.blockscout.com',
    testnet: true,
  }),
  // The address comes from Circle's list, and the domain from the default assets of @x402/evm and the table of the crate r402 (2026-11-29).
  avalanche: networkOf('avalanche', 43114, {
    ...avalanche,
    usdc: '0xb97ef9ef8734c71904d8002f8b6bc66dd9c48a6e',
    explorerUrl: 'https://snowtrace.io',
    testnet: false,
  }),
  // The address comes from Circle's list, and the domain from x402's table for v1 and the table of the crate r402 (2026-11-29).
  'avalanche-fuji': networkOf('avalanche-fuji', 43113, {
    ...avalanche,
    usdc: '0x5425890298aed601595a70ab815c96711a31bc65',
    explorerUrl: 'https://testnet.snowtrace.io',
    testnet: true,
  }),
  localhost: networkOf('localhost', 31337, {
    usdc: null,
    eip712: usdCoin,
    confirmations: 1,
    // The node mines on demand, so this time is only nominal.
    blockTimeMs: 2_000,
    gasModel: 'plain',
    gasToken: 'ETH',
    testnet: true,
  }),
}

/**
 * The names of all networks, in the table's order. Networks that `defineNetwork` added come last.
 *
 * @example
 * import { networkNames } from '@tollkeeper/sdk'
 *
 * console.log(networkNames.slice(0, 3).join(' '))
 * // base base-sepolia ethereum
 */
export const networkNames: readonly NetworkName[] = Object.keys(networks)

/** The networks on which batches settle by default (conformance 1-22). The recommended one comes first. */
export const defaultNetworks = ['base', 'base-sepolia'] as const satisfies ShippedNetworkName[]

function networkOf(name: ShippedNetworkName, chainId: number, facts: Facts): Network {
  return { name, chainId, caip2: `eip155:${chainId}`, minimumPrice, ...facts }
}

/**
 * Returns whether a received value is the name of a network.
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
 * Finds a network by its name, or by the object that `defineNetwork` returned.
 *
 * @throws {ProtocolError} `unknown_network`
 * @example
 * import { networkByName } from '@tollkeeper/sdk/protocol'
 *
 * console.log(networkByName('base').caip2)
 * // eip155:8453
 */
export function networkByName(nameOrNetwork: NetworkName | Network): Network {
  const name = typeof nameOrNetwork === 'object' ? nameOrNetwork?.name : nameOrNetwork
  const found = isNetworkName(name) ? networks[name] : undefined
  // Reject an object that a caller wrote itself: it was never checked, so its token may be wrong, and its name may belong to another network.
  if (found !== undefined && (name === nameOrNetwork || found === nameOrNetwork)) return found
  const got = typeof name === 'string' ? `"${name.slice(0, 80)}"` : String(name)
  throw new ProtocolError('unknown_network', `Expected one of ${networkNames.join(', ')}, got ${got}`)
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
  const network = findNetwork(chainId)
  if (!network) throw new ProtocolError('unknown_network', `No network has chain id ${chainId}`)
  return network
}

/** Finds a network like {@link networkByChainId}, but returns undefined if there is none. */
export function findNetwork(chainId: number): Network | undefined {
  for (const name of networkNames) if (networks[name]?.chainId === chainId) return networks[name]
  return undefined
}
