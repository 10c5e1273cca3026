import { isAddress } from 'viem'
import {
  arbitrum,
  arbitrumSepolia,
  avalanche,
  avalancheFuji,
  base,
  baseSepolia,
  mainnet,
  optimism,
  optimismSepolia,
  polygon,
  polygonAmoy,
  sepolia,
} from 'viem/chains'
import { describe, expect, test } from 'vitest'
import vectors from '../../../test/vectors/payments.json' with { type: 'json' }
import { domainSeparator, eip712Domain } from './eip3009.ts'
import { isNetworkName, networkByChainId, networkByName, networkNames, networks } from './networks.ts'

test('default: networkNames contains all networks in order', () => {
  expect(networkNames).toEqual([
    'base',
    'base-sepolia',
    'ethereum',
    'ethereum-sepolia',
    'polygon',
    'polygon-amoy',
    'arbitrum',
    'arbitrum-sepolia',
    'optimism',
    'optimism-sepolia',
    'avalanche',
    'avalanche-fuji',
    'localhost',
  ])
})

test.each([
  ['base', base],
  ['base-sepolia', baseSepolia],
  ['ethereum', mainnet],
  ['ethereum-sepolia', sepolia],
  ['polygon', polygon],
  ['polygon-amoy', polygonAmoy],
  ['arbitrum', arbitrum],
  ['arbitrum-sepolia', arbitrumSepolia],
  ['optimism', optimism],
  ['optimism-sepolia', optimismSepolia],
  ['avalanche', avalanche],
  ['avalanche-fuji', avalancheFuji],
] as const)('behavior: %s agrees with viem', (name, chain) => {
  const network = networkByName(name)
  expect(network.chainId).toBe(chain.id)
  expect(network.testnet).toBe(Boolean(chain.testnet))
  expect(network.gasModel === 'op-stack').toBe('contracts' in chain && 'gasPriceOracle' in chain.contracts)
  expect(network.gasToken).toBe(chain.nativeCurrency.symbol)
  if ('blockTime' in chain && chain.blockTime !== undefined) expect(network.blockTimeMs).toBe(chain.blockTime)
})

test.each(Object.values(networks))('behavior: has consistent values for $name', (network) => {
  expect(networkByName(network.name)).toBe(network)
  expect(network.caip2).toBe(`eip155:${network.chainId}`)
  expect(networkByChainId(network.chainId)).toBe(network)
  for (const address of [network.usdc]) {
    if (!address) continue
    expect(isAddress(address)).toBe(true)
    expect(address).toBe(address.toLowerCase())
  }
})

test('behavior: the EIP-712 domain of each network has the token’s name', () => {
  const names = Object.fromEntries(networkNames.map((name) => [name, networkByName(name).eip712.name]))
  expect(names).toEqual({
    base: 'USD Coin',
    ethereum: 'USD Coin',
    polygon: 'USD Coin',
    localhost: 'USD Coin',
    'base-sepolia': 'USDC',
    'ethereum-sepolia': 'USDC',
    'polygon-amoy': 'USDC',
    arbitrum: 'USD Coin',
    'arbitrum-sepolia': 'USD Coin',
    optimism: 'USD Coin',
    'optimism-sepolia': 'USDC',
    avalanche: 'USD Coin',
    'avalanche-fuji': 'USD Coin',
  })
})

test('behavior: domainSeparator returns the same values as the deployed tokens', () => {
  // DOMAIN_SEPARATOR() of USDC on Ethereum, https://etherscan.io/token/0xa0b8…eb48#readProxyContract
  expect(domainSeparator(eip712Domain(networks.ethereum))).toBe(
    '0x06c37168a7db5138defc7866392bb87a741f9b3d104deb5094588ce041cae335',
  )
  expect(domainSeparator(eip712Domain(networks.base))).toBe(vectors.payments[0]?.domainSeparator)
})

describe('networkByName', () => {
  test('default: returns the network', () => {
    expect(networkByName('base').chainId).toBe(8453)
  })

  test.each(['', 'Base', 'solana', 'toString', '__proto__'])('error: rejects %j', (name) => {
    expect(isNetworkName(name)).toBe(false)
    expect(() => networkByName(name)).toThrow(expect.objectContaining({ code: 'unknown_network' }))
  })
})

test('error: rejects an unknown chain id', () => {
  expect(() => networkByChainId(2)).toThrow(expect.objectContaining({ code: 'unknown_network' }))
})
