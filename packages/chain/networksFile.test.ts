import { mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { readRpcUrls, readVariable } from '@tollkeeper/runtime/env'
import { networkVariable } from '@tollkeeper/runtime/variables'
import { networkByName, networkNames } from '@tollkeeper/sdk/protocol/networks'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { forgetOwnNetworks } from '../../test/support/ownNetworks.ts'
import { gasCutOf } from './gas.ts'
import { gasLimitsOf } from './gasLimits.ts'
import { readNetworkSettings } from './networkSettings.ts'
import { loadNetworksFile } from './networksFile.ts'

forgetOwnNetworks()

let folder: string
beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'tollkeeper-networks-'))
})
afterAll(() => rm(folder, { recursive: true, force: true }))

const usdc = '0x1111111111111111111111111111111111111111'
const definition = {
  chainId: 5_000_001,
  usdc,
  eip712: { name: 'USDC', version: '2' },
  testnet: true,
  confirmations: 5,
  blockTimeMs: 1_000,
}
const addresses = {
  batchSettlement: '0x2222222222222222222222222222222222222222',
  splitterFactory: '0x3333333333333333333333333333333333333333',
  tabSettlement: '0x4444444444444444444444444444444444444444',
}

async function write(name: string, content: unknown): Promise<string> {
  const file = join(folder, name)
  await writeFile(file, typeof content === 'string' ? content : JSON.stringify(content))
  return file
}

const load = async (content: unknown) => {
  const file = await write('networks.json', content)
  return () => loadNetworksFile({ NETWORKS_FILE: file })
}

test('reads a custom network, its RPC variable and its deployment in every process', async () => {
  const deployment = { ...addresses, usdc, startBlock: 7 }
  const env = {
    NETWORKS_FILE: await write('own.json', {
      'own-net1': { ...definition, maxFeeGwei: 3, batchGas: 2_000_000 },
    }),
    DEPLOYMENTS_FILE: await write('deployments.json', { 'own-net1': deployment }),
    NETWORKS: 'own-net1',
    RPC_URL_OWN_NET1: 'http://one.example, http://two.example',
  }
  const [settings] = readNetworkSettings(env)
  expect(settings).toEqual({
    network: networkByName('own-net1'),
    deployment,
    rpcUrls: ['http://one.example', 'http://two.example'],
  })
  // A process reads the environment several times, and each time adds the networks, so adding them again must change nothing.
  expect(readNetworkSettings(env)).toHaveLength(1)
  const network = networkByName('own-net1')
  expect(gasLimitsOf(network, {}).maxFeePerGas).toBe(3_000_000_000n)
  expect(gasCutOf(network)).toBe(2_000_000n)
  expect(networkVariable('RPC_URL', 'own-net1')).toBe('RPC_URL_OWN_NET1')
  expect(readVariable({ MINIMUM_PRICES_USDC: 'own-net1:0.5' }, 'MINIMUM_PRICES_USDC')).toEqual([
    ['own-net1', 500_000n],
  ])
  expect(readVariable({ KEEPER_SIGNER_URL: 'own-net1=https://signer.example' }, 'KEEPER_SIGNER_URL')).toEqual(
    new Map([['own-net1', 'https://signer.example']]),
  )
  expect(readRpcUrls({}, 'own-net1')).toBeNull()
})

test('rejects a deployment whose token differs from the token in NETWORKS_FILE', async () => {
  const env = {
    NETWORKS_FILE: await write('own2.json', { 'own-net2': { ...definition, chainId: 5_000_002 } }),
    DEPLOYMENTS_FILE: await write('deployments2.json', {
      'own-net2': { ...addresses, usdc: addresses.tabSettlement, startBlock: 7 },
    }),
    NETWORKS: 'own-net2',
    RPC_URL_OWN_NET2: 'http://one.example',
  }
  expect(() => readNetworkSettings(env)).toThrow(
    `DEPLOYMENTS_FILE: expected own-net2 with the USDC of NETWORKS_FILE, ${usdc}, got ${addresses.tabSettlement}`,
  )
})

test('rejects an unknown network, and lists the known ones', () => {
  expect(() => readNetworkSettings({ NETWORKS: 'never-described' })).toThrow(
    /NETWORKS: expected names among base, .*avalanche/,
  )
})

const own = (fields: object) => ({ 'other-net': { ...definition, chainId: 5_000_009, ...fields } })

test.each<[string, unknown, RegExp]>([
  ['a file that is not JSON', '{', /expected valid JSON/],
  ['a list instead of an object', [], /an object with one entry per network/],
  ['another USDC for a shipped chain', own({ chainId: 8453 }), /8453 is taken by base/],
  [
    'another USDC under the name of a shipped network',
    { base: { ...definition, chainId: 5_000_009 } },
    /"base" is taken by base/,
  ],
  [
    'real money that is declared as testnet funds',
    own({ chainId: 130, testnet: true }),
    /chain 130 is a production network/,
  ],
  [
    'testnet funds that are declared as real',
    own({ chainId: 1301, testnet: false }),
    /chain 1301 is a test network/,
  ],
  [
    'the same name twice',
    `{"other-net": ${JSON.stringify(own({})['other-net'])}, "other-net": ${JSON.stringify(own({ chainId: 5_000_010 })['other-net'])}}`,
    /each key of an object once, got "other-net" twice/,
  ],
  [
    'the same name twice, once with an escaped letter',
    `{"other-net": ${JSON.stringify(own({})['other-net'])}, "oth\\u0065r-net": ${JSON.stringify(own({})['other-net'])}}`,
    /"other-net" twice/,
  ],
  [
    'the same field twice',
    JSON.stringify(own({})).replace('"testnet":true', '"testnet":true,"testnet":false'),
    /"testnet" twice/,
  ],
  ['a network named __proto__', '{"__proto__": {"chainId": 1}}', /name must be/],
  ['a number of confirmations of 0', own({ confirmations: 0 }), /confirmations must be an integer from 1/],
  ['a chainId of 1e400', JSON.stringify(own({})).replace('5000009', '1e400'), /chainId must be/],
  ['a file of more than 1,000,000 bytes', ' '.repeat(1_000_001), /a file of at most 1000000 bytes/],
])('rejects %s, and adds no network', async (_, content, message) => {
  const before = [...networkNames]
  const run = await load(content)
  expect(run).toThrow(message)
  expect(run).toThrow(/^NETWORKS_FILE: expected /)
  expect(networkNames).toEqual(before)
})

test('rejects a missing file', () => {
  const file = join(folder, 'none.json')
  expect(() => loadNetworksFile({ NETWORKS_FILE: file })).toThrow(
    `NETWORKS_FILE: expected the path of a readable JSON file, got ENOENT for ${file}`,
  )
})

test('ignores colons and braces inside strings when it looks for repeated keys', async () => {
  const run = await load({
    'odd-net': { ...definition, chainId: 5_000_011, eip712: { name: '{"a":1,"a":2}', version: '2' } },
  })
  expect(run).not.toThrow()
})
