import { gasLimitsOf } from '@tollkeeper/chain/gasLimits'
import { createGasMeter, type MeteredNetwork, undeployed } from '@tollkeeper/chain/gasShares'
import { readDeployments, readPriorityFee } from '@tollkeeper/chain/networkSettings'
import type { UnitPrices } from '@tollkeeper/chain/typicalGas'
import { type Environment, readRpcUrls, readVariable } from '@tollkeeper/runtime/env'
import { networkVariable } from '@tollkeeper/runtime/variables'
import { type Network, networkByName } from '@tollkeeper/sdk/protocol/networks'
import { createPublicClient, http } from 'viem'
import { CliError } from '../terminal/cliError.ts'
import type { CostFlags } from './flags.ts'
import { formatGwei } from './gwei.ts'

export type PricesFound = UnitPrices & {
  /**
   * `node`: read from the node now. `flags`: given as flags. `example`: the figures of docs/costs.md, because no node is
   * configured.
   */
  source: 'node' | 'flags' | 'example'
}

/** The example prices of docs/costs.md: 0.002 gwei, which is Base's minimum since 2 February 2026, and 2,500 USD for 1 ETH. */
const examplePrices: UnitPrices = { expected: 2_000_000n, dataFee: 0n, usdPerToken: 2_500_000_000n }

const timeoutMs = 10_000

/** Returns the gas prices: from flags, or else from a node, or else the example prices. @throws {CliError} */
export async function findPrices(flags: CostFlags, env: Environment): Promise<PricesFound> {
  const network = networkByName(flags.network)
  if (flags.ethUsd !== undefined && flags.gasPrice === undefined)
    throw new CliError('invalid_flags', '--eth-usd: needs --gas-price; a node has both prices')
  if (flags.gasPrice !== undefined) {
    const usdPerToken = flags.ethUsd ?? readVariable(env, 'ETH_USD')
    return { expected: flags.gasPrice, dataFee: 0n, usdPerToken, source: 'flags' }
  }
  const [url] = flags.rpc === undefined ? (readRpcUrls(env, network.name) ?? []) : [flags.rpc]
  if (url === undefined) return { ...examplePrices, source: 'example' }
  return { ...(await readPrices(network, url, env)), source: 'node' }
}

async function readPrices(network: Network, url: string, env: Environment): Promise<UnitPrices> {
  const client = createPublicClient({ transport: http(url, { timeout: timeoutMs, retryCount: 1 }) })
  const deployment = readDeployments(env)[network.name] ?? undeployed
  const named = `the node of ${network.name} (--rpc, ${networkVariable('RPC_URL', network.name)})`
  const chainId = await client.getChainId().catch((error: unknown) => {
    throw new CliError(
      'rpc_error',
      `${named} doesn't respond. Give another one, or --gas-price ${formatGwei(examplePrices.expected)} --eth-usd 2500`,
      error,
    )
  })
  if (chainId !== network.chainId)
    throw new CliError(
      'wrong_chain',
      `${named} serves chain ${chainId}; ${network.name} is ${network.chainId}`,
    )
  return readUnitPrices({ network, deployment, client }, env)
}

/** Reads the current gas prices of a network. The operator's settings (priority fee, gas limits, ETH_USD) apply. */
export async function readUnitPrices(metered: MeteredNetwork, env: Environment): Promise<UnitPrices> {
  const settings = {
    priorityFeePerGas: readPriorityFee(env),
    gasTokenUsd: readVariable(env, 'ETH_USD'),
    maxFeePerGas: gasLimitsOf(metered.network, {}).maxFeePerGas,
  }
  const { expected, dataFee, usdPerToken } = await createGasMeter(metered, settings, () => new Date()).read()
  return { expected, dataFee, usdPerToken }
}
