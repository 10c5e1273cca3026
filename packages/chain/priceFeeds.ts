import type { Network, NetworkName, ShippedNetworkName } from '@tollkeeper/sdk/protocol/networks'
import type { Address } from 'viem'

/**
 * Chainlink's aggregators for the USD price of each gas token, from Chainlink's list of data feeds. The feeds of Arbitrum, Optimism
 * and Avalanche were checked against two or more public deployments (2026-11-29). Only operators need them, so the SDK's table of
 * networks, which is in every buyer's bundle, doesn't contain them.
 */
const shipped: { [network in NetworkName]?: Address } & { [network in ShippedNetworkName]?: Address } = {
  base: '0x71041dddad3595f9ced3dccfbe3d1f4b0a16bb70',
  'base-sepolia': '0x4adc67696ba383f43dd60a9e78f2c97fbbfc7cb1',
  ethereum: '0x5f4ec3df9cbd43714fe2740f5e3616155c5b8419',
  'ethereum-sepolia': '0x694aa1769357215de4fac081bf1f309adc325306',
  polygon: '0xab594600376ec9fd91f8e885dadf0ce036862de0',
  'polygon-amoy': '0x001382149eba3441043c1c66972b4772963f5d43',
  arbitrum: '0x639fe6ab55c921f74e7fac1ee960c0b6293ba612',
  'arbitrum-sepolia': '0xd30e2101a97dcbaebcbc04f14c3f624e67a35165',
  optimism: '0x13e3ee699d1909e989722e753853ae30b17e08c5',
  'optimism-sepolia': '0x61ec26aa57019c486b10502285c5a3d4a4750ad7',
  avalanche: '0x0a77230d17318075983913bc2145db16c7366156',
  'avalanche-fuji': '0x5498bb86bc934c8d34fda08e81d444153d0d06ad',
}

/**
 * Returns the price feed of a network's gas token: the one in the network's description, or else the one of a shipped network.
 */
export function priceFeedOf({ name, priceFeed }: Pick<Network, 'name' | 'priceFeed'>): Address | undefined {
  return priceFeed ?? shipped[name]
}
