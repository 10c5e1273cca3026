import { describe, expect, test } from 'vitest'
import schema from '../../../docs/networks.schema.json' with { type: 'json' }
import { forgetOwnNetworks } from '../../../test/support/ownNetworks.ts'
import {
  defineNetwork,
  defineNetworks,
  isShipped,
  type NetworkDefinition,
  readNetworks,
} from './networkDefinition.ts'
import { isNetworkName, networkByChainId, networkByName, networkNames, networks } from './networks.ts'

const definition: NetworkDefinition = {
  chainId: 4_242_424,
  usdc: '0x1111111111111111111111111111111111111111',
  eip712: { name: 'USDC', version: '2' },
  testnet: true,
  confirmations: 5,
  blockTimeMs: 1_000,
}

forgetOwnNetworks()
const shipped = [...networkNames]

describe('defineNetwork', () => {
  test('adds a network to the table of this process', () => {
    const defined = defineNetwork('my-chain', {
      ...definition,
      usdc: '0xABcdEFABcdEFabcdEfAbCdefabcdeFABcDEFabCD',
    })
    expect(defined).toEqual({
      name: 'my-chain',
      chainId: 4_242_424,
      caip2: 'eip155:4242424',
      usdc: '0xabcdefabcdefabcdefabcdefabcdefabcdefabcd',
      eip712: { name: 'USDC', version: '2' },
      testnet: true,
      confirmations: 5,
      blockTimeMs: 1_000,
      gasModel: 'plain',
      gasToken: 'ETH',
      minimumPrice: 5_000n,
    })
    expect(networkByName('my-chain')).toBe(defined)
    expect(networkByChainId(4_242_424)).toBe(defined)
    expect(networkByName(defined)).toBe(defined)
    expect(networkNames).toEqual([...shipped, 'my-chain'])
    expect([isNetworkName('my-chain'), isShipped('my-chain')]).toEqual([true, false])
  })

  test('accepts the same definition again, and rejects a different definition under the same name', () => {
    const first = defineNetwork('twice', { ...definition, chainId: 4_242_425 })
    expect(defineNetwork('twice', { ...definition, chainId: 4_242_425 })).toBe(first)
    expect(() => defineNetwork('twice', { ...definition, chainId: 4_242_425, testnet: false })).toThrow(
      /taken by twice/,
    )
    expect(networkByName('twice')).toBe(first)
  })

  test('reads every optional field', () => {
    const defined = defineNetwork('all-fields', {
      ...definition,
      chainId: 4_242_426,
      gasModel: 'arbitrum',
      gasToken: 'S',
      priceFeed: '0x2222222222222222222222222222222222222222',
      gasTokenUsd: '0.35',
      maxFeeGwei: 7,
      batchGas: 2_000_000,
      explorerUrl: 'https://explorer.example/',
      minimumPriceUsdc: '0.01',
    })
    expect(defined).toMatchObject({
      gasModel: 'arbitrum',
      gasToken: 'S',
      priceFeed: '0x2222222222222222222222222222222222222222',
      gasTokenUsd: 350_000n,
      maxFeePerGas: 7_000_000_000n,
      batchGas: 2_000_000n,
      explorerUrl: 'https://explorer.example',
      minimumPrice: 10_000n,
    })
  })
})

test('rejects a network object that was not returned by defineNetwork', () => {
  const forged = { ...networks.base, usdc: '0x1111111111111111111111111111111111111111' } as const
  expect(() => networkByName(forged)).toThrow(expect.objectContaining({ code: 'unknown_network' }))
  expect(networkByName(networks.base)).toBe(networks.base)
})

const hostile: [string, string, unknown, RegExp][] = [
  ['a fake USDC under a shipped name', 'base', definition, /name .* taken by base/],
  ["someone else's chain id", 'fake-base', { ...definition, chainId: 8453 }, /8453 is taken by base/],
  ['a name in upper case', 'MyChain', definition, /name must be/],
  ['a name that is not valid in an environment variable', 'my_chain', definition, /name must be/],
  ['a name with a path', '../etc', definition, /name must be/],
  ['a name that is too long', `a${'b'.repeat(32)}`, definition, /name must be/],
  [
    'a name with two hyphens in a row, which could give the same variable as another name',
    'my--chain',
    definition,
    /name must be/,
  ],
  ['a name that is a property of every object', 'constructor', definition, /name must be/],
  ['an entry that is not an object', 'nothing', null, /entry must be/],
  ['an unknown field', 'other', { ...definition, token: '0x' }, /token must be left out/],
  [
    'an unknown field of the domain',
    'other',
    { ...definition, eip712: { name: 'USDC', version: '2', chainId: 1 } },
    /eip712\.chainId/,
  ],
  ['no confirmations', 'other', { ...definition, confirmations: 0 }, /confirmations must be/],
  ['negative confirmations', 'other', { ...definition, confirmations: -1 }, /confirmations must be/],
  ['a fraction of a confirmation', 'other', { ...definition, confirmations: 1.5 }, /confirmations must be/],
  ['a chain id beyond 32 bits', 'other', { ...definition, chainId: 2 ** 31 }, /chainId must be/],
  ['a huge number', 'other', { ...definition, chainId: 1e308 }, /chainId must be/],
  ['a chain id as text', 'other', { ...definition, chainId: '4242427' }, /chainId must be/],
  ['a token that is not an address', 'other', { ...definition, usdc: '0x12' }, /usdc must be/],
  ['the zero address', 'other', { ...definition, usdc: `0x${'0'.repeat(40)}` }, /usdc must be/],
  ['no token', 'other', { ...definition, usdc: null }, /usdc must be/],
  ['no domain', 'other', { ...definition, eip712: undefined }, /eip712 must be/],
  [
    'a domain with control characters',
    'other',
    { ...definition, eip712: { name: 'US\nDC', version: '2' } },
    /eip712\.name/,
  ],
  ['a testnet flag that is text', 'other', { ...definition, testnet: 'false' }, /testnet must be/],
  ['an unknown gas model', 'other', { ...definition, gasModel: 'zksync' }, /gasModel must be/],
  [
    'a script URL as explorer',
    'other',
    { ...definition, explorerUrl: 'javascript:alert(1)' },
    /explorerUrl must be/,
  ],
  [
    'a password in the explorer URL',
    'other',
    { ...definition, explorerUrl: 'https://a:b@c.example' },
    /explorerUrl must be/,
  ],
  [
    'a minimum price below the protocol’s',
    'other',
    { ...definition, minimumPriceUsdc: '0.004' },
    /minimumPriceUsdc must be/,
  ],
  ['a price as a number', 'other', { ...definition, minimumPriceUsdc: 0.01 }, /minimumPriceUsdc must be/],
  ['a gas price of zero', 'other', { ...definition, maxFeeGwei: 0 }, /maxFeeGwei must be/],
  ['a block time of zero', 'other', { ...definition, blockTimeMs: 0 }, /blockTimeMs must be/],
  ['a batch that exceeds a block’s gas', 'other', { ...definition, batchGas: 1e12 }, /batchGas must be/],
]

test.each(hostile)('rejects %s', (_, name, json, message) => {
  const before = [...networkNames]
  const refused = expect.objectContaining({ code: 'invalid_field', message: expect.stringMatching(message) })
  expect(() => defineNetworks({ [name]: json })).toThrow(refused)
  expect(networkNames).toEqual(before)
})

test('adds no network of a file if one of them is invalid', () => {
  const before = [...networkNames]
  const json = {
    'fine-one': { ...definition, chainId: 4_242_430 },
    'same-id': { ...definition, chainId: 4_242_430 },
  }
  expect(() => defineNetworks(json)).toThrow(/4242430 is taken by fine-one/)
  expect(networkNames).toEqual(before)
})

test('rejects the key __proto__ in the JSON', () => {
  const entry = JSON.stringify({ ...definition, chainId: 4_242_431 })
  for (const text of [
    `{"__proto__": ${entry}}`,
    `{"fine": ${entry.replace('{', '{"__proto__": {"testnet": false}, ')}}`,
  ]) {
    expect(() => readNetworks(JSON.parse(text))).toThrow(expect.objectContaining({ code: 'invalid_field' }))
  }
  expect(({} as Record<string, unknown>).testnet).toBeUndefined()
})

test('reads exactly the fields of docs/networks.schema.json', () => {
  const { properties, required, additionalProperties } = schema.additionalProperties
  expect(additionalProperties).toBe(false)
  expect(() => defineNetworks({ 'no-such': { nonsense: 1 } })).toThrow(
    `the fields are ${Object.keys(properties).join(', ')}`,
  )
  expect(required.toSorted()).toEqual(Object.keys(definition).toSorted())
  expect(properties.gasModel.enum).toEqual(['plain', 'op-stack', 'arbitrum'])
  expect(schema.propertyNames.pattern).toBe('^(?=.{2,32}$)[a-z][a-z0-9]*(?:-[a-z0-9]+)*$')
})
