import { isAddress } from 'viem'
import { base, baseSepolia, mainnet, polygon, polygonAmoy, sepolia } from 'viem/chains'
import { describe, expect, test } from 'vitest'
import vectors from '../../../test/vectors/payments.json' with { type: 'json' }
import { domainSeparator, eip712Domain } from './eip3009.ts'
import { isNetworkName, networkByChainId, networkByName, networkNames, networks } from './networks.ts'

test('default', () => {
  expect(networkNames).toEqual([
    'base',
    'base-sepolia',
    'ethereum',
    'ethereum-sepolia',
    'polygon',
    'polygon-amoy',
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
] as const)('behavior: %s agrees with viem', (name, chain) => {
  const network = networks[name]
  expect(network.chainId).toBe(chain.id)
  expect(network.testnet).toBe(Boolean(chain.testnet))
  expect(network.isOpStack).toBe('contracts' in chain && 'gasPriceOracle' in chain.contracts)
})

test.each(Object.values(networks))('behavior: the row of $name is consistent', (network) => {
  expect(networks[network.name]).toBe(network)
  expect(network.caip2).toBe(`eip155:${network.chainId}`)
  expect(networkByChainId(network.chainId)).toBe(network)
  for (const address of [network.usdc, network.ethUsdFeed]) {
    if (!address) continue
    expect(isAddress(address)).toBe(true)
    expect(address).toBe(address.toLowerCase())
  }
})

test('behavior: the domain is named as the token on each network is', () => {
  const names = Object.fromEntries(networkNames.map((name) => [name, networks[name].eip712.name]))
  expect(names).toEqual({
    base: 'USD Coin',
    ethereum: 'USD Coin',
    polygon: 'USD Coin',
    localhost: 'USD Coin',
    'base-sepolia': 'USDC',
    'ethereum-sepolia': 'USDC',
    'polygon-amoy': 'USDC',
  })
})

test('behavior: the domain separators are the deployed tokens’ own', () => {
  // DOMAIN_SEPARATOR() of USDC on Ethereum, https://etherscan.io/token/0xa0b8…eb48#readProxyContract
  expect(domainSeparator(eip712Domain(networks.ethereum))).toBe(
    '0x06c37168a7db5138defc7866392bb87a741f9b3d104deb5094588ce041cae335',
  )
  expect(domainSeparator(eip712Domain(networks.base))).toBe(vectors.payments[0]?.domainSeparator)
})

describe('networkByName', () => {
  test('default', () => {
    expect(networkByName('base').chainId).toBe(8453)
  })

  test.each(['', 'Base', 'solana', 'toString', '__proto__'])('error: %j', (name) => {
    expect(isNetworkName(name)).toBe(false)
    expect(() => networkByName(name)).toThrow(expect.objectContaining({ code: 'unknown_network' }))
  })
})

test('error: no network has the chain id', () => {
  expect(() => networkByChainId(2)).toThrow(expect.objectContaining({ code: 'unknown_network' }))
})
