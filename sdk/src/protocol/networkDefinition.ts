import type { Address } from 'viem'
import { parseUsdc } from './amount.ts'
import { fieldsOf, isRecord, parseUrl } from './fields.ts'
import {
  findNetwork,
  type GasModel,
  type Network,
  type NetworkName,
  networkNames,
  networks,
  type ShippedNetworkName,
} from './networks.ts'
import { minimumPrice } from './tier.ts'

/**
 * A network that isn't shipped with this version. An operator or a buyer describes it. `docs/networks.schema.json` is its JSON Schema.
 *
 * @property chainId what the chain's nodes return for `eth_chainId`, below 2^31.
 * @property usdc address of Circle's USDC on this network. Only you can check that it is USDC.
 * @property eip712 the token's own `name()` and `version()`.
 * @property testnet whether its USDC has no real value.
 * @property confirmations number of confirmations after which a settlement counts as confirmed, 1 to 10,000.
 * @property blockTimeMs time in ms between two blocks, 50 to 60,000.
 * @property gasModel how the chain charges for a transaction. Default `plain`.
 * @property gasToken symbol of the coin that pays for gas. Default `ETH`.
 * @property priceFeed Chainlink aggregator with the USD price of the gas token.
 * @property gasTokenUsd USD price of one gas token, decimal. Used if there is no price feed or its price is stale. Default: the operator's `ETH_USD`.
 * @property maxFeeGwei default maximum price of a gas unit that the keeper offers, in gwei. Default 100.
 * @property batchGas maximum gas of a batch. The keeper splits a larger batch. From 1,000,000 to 15,500,000, and at most the gas of a block.
 * Default 15,500,000.
 * @property explorerUrl URL of a block explorer, for links to transactions and addresses.
 * @property minimumPriceUsdc minimum price of a single request, at least the protocol's 0.005.
 */
export type NetworkDefinition = {
  chainId: number
  usdc: Address
  eip712: { name: string; version: string }
  testnet: boolean
  confirmations: number
  blockTimeMs: number
  gasModel?: GasModel
  gasToken?: string
  priceFeed?: Address
  gasTokenUsd?: string
  maxFeeGwei?: number
  batchGas?: number
  explorerUrl?: string
  minimumPriceUsdc?: string
}

/** Names are used in environment variables, file names, labels and SQL values. */
const namePattern = /^(?=.{2,32}$)[a-z][a-z0-9]*(?:-[a-z0-9]+)*$/
const addressPattern = /^0x[0-9a-fA-F]{40}$/
const gasModels: readonly unknown[] = ['plain', 'op-stack', 'arbitrum'] satisfies GasModel[]
const gwei = 1_000_000_000n
const mostNetworks = 100

const knownFields: Record<keyof NetworkDefinition, true> = {
  chainId: true,
  usdc: true,
  eip712: true,
  testnet: true,
  confirmations: true,
  blockTimeMs: true,
  gasModel: true,
  gasToken: true,
  priceFeed: true,
  gasTokenUsd: true,
  maxFeeGwei: true,
  batchGas: true,
  explorerUrl: true,
  minimumPriceUsdc: true,
}

/**
 * Adds a network to this process. Afterwards `createClient`, `requirePayment`, the audit and the rest of this package accept its name.
 *
 * The token and its EIP-712 domain come only from this definition: sellers and gateways can't name another token. A shipped network can't be
 * replaced, neither by name nor by chain id. Adding the same definition again has no effect.
 *
 * @returns the network. Options named `network` accept it as well as its name.
 * @throws {ProtocolError} `invalid_field`, with the invalid field in `details.field`.
 * @example
 * import { defineNetwork } from '@tollkeeper/sdk/protocol'
 *
 * const example = defineNetwork('example-chain', {
 *   chainId: 424242,
 *   usdc: '0x1111111111111111111111111111111111111111',
 *   eip712: { name: 'USDC', version: '2' },
 *   testnet: true,
 *   confirmations: 5,
 *   blockTimeMs: 1000,
 * })
 * console.log(example.caip2)
 * // eip155:424242
 */
export function defineNetwork(name: string, definition: NetworkDefinition): Network {
  return defineNetworks({ [name]: definition })[0] as Network
}

/**
 * Adds all networks of a file, `{ "<name>": { … } }`. If one is invalid, adds none.
 *
 * @throws {ProtocolError} `invalid_field`
 */
export function defineNetworks(json: unknown): Network[] {
  const { defined, added } = readNetworks(json)
  for (const network of added) addNetwork(network)
  return defined
}

/**
 * Checks the networks of a file without adding them.
 *
 * @returns `added`: the networks that the table doesn't contain yet.
 * @throws {ProtocolError} `invalid_field`
 */
export function readNetworks(json: unknown): { defined: Network[]; added: Network[] } {
  const { invalid } = fieldsOf('invalid_field', 'Networks')
  if (!isRecord(json)) throw invalid('file', 'an object with one entry per network')
  const entries = Object.entries(json)
  if (entries.length > mostNetworks) throw invalid('file', `an object of at most ${mostNetworks} networks`)
  const defined: Network[] = []
  const added: Network[] = []
  for (const [name, definition] of entries) {
    const network = parseNetwork(name, definition)
    const taken =
      (Object.hasOwn(networks, name) ? networks[name] : findNetwork(network.chainId)) ??
      added.find(({ chainId }) => chainId === network.chainId)
    const isKnown = taken !== undefined && isSame(taken, network)
    if (taken !== undefined && !isKnown) {
      const field = taken.name === name ? 'name' : 'chainId'
      const other = `${taken.name} (chain ${taken.chainId})`
      throw invalid(
        `${name}.${field}`,
        `one that no other network has. ${field === 'name' ? `"${name}"` : network.chainId} is taken by ${other}, which can't be replaced`,
      )
    }
    defined.push(isKnown ? taken : network)
    if (!isKnown) added.push(network)
  }
  return { defined, added }
}

function parseNetwork(name: string, json: unknown): Network {
  const { invalid, object, text, integer } = fieldsOf(
    'invalid_field',
    `Network ${JSON.stringify(name.slice(0, 40))}`,
  )
  // Reject names such as `constructor`: tables by name are objects, and every object has properties with these names.
  if (!namePattern.test(name) || name in {})
    throw invalid('name', '2 to 32 lower-case letters, digits and single hyphens, beginning with a letter')
  const given = object(json, 'entry')
  const unknown = Object.keys(given).find((field) => !Object.hasOwn(knownFields, field))
  if (unknown !== undefined)
    throw invalid(unknown.slice(0, 40), `left out: the fields are ${Object.keys(knownFields).join(', ')}`)

  const address = (field: 'usdc' | 'priceFeed'): Address => {
    const value = text(given, field, addressPattern).toLowerCase() as Address
    if (BigInt(value) === 0n) throw invalid(field, 'the address of a contract, not zero')
    return value
  }
  const usd = (field: 'gasTokenUsd' | 'minimumPriceUsdc', least: bigint): bigint => {
    const value = given[field]
    const expected = `a decimal like "0.05", at least ${Number(least) / 1e6}`
    if (typeof value !== 'string') throw invalid(field, expected)
    let amount: bigint
    try {
      amount = parseUsdc(value)
    } catch (cause) {
      throw invalid(field, expected, cause)
    }
    if (amount < least || amount > 10n ** 13n) throw invalid(field, expected)
    return amount
  }
  const { testnet, gasModel = 'plain', explorerUrl } = given
  if (typeof testnet !== 'boolean') throw invalid('testnet', 'true or false')
  if (!gasModels.includes(gasModel)) throw invalid('gasModel', gasModels.join(', '))
  const domain = object(given.eip712, 'eip712')
  const { name: domainName, version, ...rest } = domain
  const further = Object.keys(rest)[0]
  if (further !== undefined)
    throw invalid(`eip712.${further.slice(0, 40)}`, 'left out: eip712 has only name and version')
  // The database stores chain ids as 32-bit integers.
  const chainId = integer(given.chainId, 'chainId', [1, 2 ** 31 - 1])
  return {
    name,
    chainId,
    caip2: `eip155:${chainId}`,
    usdc: address('usdc'),
    eip712: {
      name: text({ name: domainName }, 'name', /^[ -~]{1,64}$/, 'eip712'),
      version: text({ version }, 'version', /^[ -~]{1,16}$/, 'eip712'),
    },
    confirmations: integer(given.confirmations, 'confirmations', [1, 10_000]),
    blockTimeMs: integer(given.blockTimeMs, 'blockTimeMs', [50, 60_000]),
    gasModel: gasModel as GasModel,
    gasToken: given.gasToken === undefined ? 'ETH' : text(given, 'gasToken', /^[A-Za-z0-9.]{1,16}$/),
    ...(given.priceFeed !== undefined && { priceFeed: address('priceFeed') }),
    ...(given.gasTokenUsd !== undefined && { gasTokenUsd: usd('gasTokenUsd', 1n) }),
    ...(given.maxFeeGwei !== undefined && {
      maxFeePerGas: BigInt(integer(given.maxFeeGwei, 'maxFeeGwei', [1, 1_000_000])) * gwei,
    }),
    ...(given.batchGas !== undefined && {
      batchGas: BigInt(integer(given.batchGas, 'batchGas', [1_000_000, 15_500_000])),
    }),
    ...(explorerUrl !== undefined && { explorerUrl: parseExplorer(explorerUrl, invalid) }),
    minimumPrice: given.minimumPriceUsdc === undefined ? minimumPrice : usd('minimumPriceUsdc', minimumPrice),
    testnet,
  }
}

/** Parses the explorer's URL. The dashboard links to it, so it must be an http(s) URL. */
function parseExplorer(value: unknown, invalid: ReturnType<typeof fieldsOf>['invalid']): string {
  const url = typeof value === 'string' ? parseUrl(value) : undefined
  const isPlain = url !== undefined && /^https?:$/.test(url.protocol) && url.search === '' && url.hash === ''
  if (!isPlain || url.username !== '' || url.password !== '')
    throw invalid('explorerUrl', 'an http(s) URL without query, fragment and password')
  return url.href.replace(/\/+$/, '')
}

function isSame(one: Network, other: Network): boolean {
  const textOf = (network: Network) =>
    JSON.stringify(network, (_, value) => (typeof value === 'bigint' ? `${value}` : value))
  return textOf(one) === textOf(other)
}

const definedNames = new Set<string>()

/** Returns whether this version ships the network. If not, a file or a caller has defined it. */
export function isShipped(name: string): name is ShippedNetworkName {
  return Object.hasOwn(networks, name) && !definedNames.has(name)
}

/** Adds a network to the table. Networks are never removed, because receipts, records and signatures refer to their names and chain ids. */
function addNetwork(network: Network): void {
  Object.assign(networks, { [network.name]: network })
  ;(networkNames as NetworkName[]).push(network.name)
  definedNames.add(network.name)
}

/** Removes a defined network. Only for tests that share a process. */
export function removeNetwork({ name }: Pick<Network, 'name'>): void {
  if (!definedNames.delete(name)) return
  delete (networks as Record<string, Network>)[name]
  ;(networkNames as NetworkName[]).splice(networkNames.indexOf(name), 1)
}
