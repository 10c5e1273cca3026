import { readFileSync } from 'node:fs'
import {
  ConfigError,
  type Environment,
  isSet,
  readRpcUrls,
  readVariable,
  requireRpcUrls,
} from '@tollkeeper/runtime/env'
import { ownCommand } from '@tollkeeper/runtime/ownCommand'
import { networkNameList } from '@tollkeeper/runtime/parsers'
import { networkVariable } from '@tollkeeper/runtime/variables'
import {
  committedDeployments,
  type Deployment,
  type Deployments,
  parseDeployments,
} from '@tollkeeper/sdk/protocol/deployments'
import { isShipped } from '@tollkeeper/sdk/protocol/networkDefinition'
import {
  defaultNetworks,
  type Network,
  type NetworkName,
  networkByName,
} from '@tollkeeper/sdk/protocol/networks'
import { findDeployments, locateDeployments, type Place } from './deploymentsFile.ts'
import { loadNetworksFile } from './networksFile.ts'

/** The environment's settings for a network that this process serves. */
export type NetworkSettings = {
  network: Network
  deployment: Deployment
  /** URLs of the nodes, in the order in which reads try them. Each one receives every broadcast. */
  rpcUrls: string[]
}

/**
 * Reads `NETWORKS_FILE`, `NETWORKS`, `RPC_URL_<NETWORK>` and `DEPLOYMENTS_FILE`.
 *
 * @param place where to look for `deployments.json`. Default: where this process runs.
 * @param common the deployment for networks without a recorded one. It isn't used if `DEPLOYMENTS_FILE` is set, because a network
 * that is missing in that file is a mistake.
 * @throws {ConfigError}
 */
export function readNetworkSettings(
  env: Environment,
  place?: Place,
  common?: (network: Network) => Deployment,
): NetworkSettings[] {
  const chosen = readChosenNetworks(env)
  const deployments = readDeployments(env, place)
  return chosen.map((name) => {
    const network = networkByName(name)
    const deployment = deployments[name] ?? (isSet(env, 'DEPLOYMENTS_FILE') ? undefined : common?.(network))
    if (deployment === undefined) {
      throw new ConfigError(
        isSet(env, 'DEPLOYMENTS_FILE') ? 'DEPLOYMENTS_FILE' : 'NETWORKS',
        'a deployment of our contracts on each served network',
        `none on ${name} in ${locateDeployments(env, place)}. To deploy them and record the deployment there, run ` +
          `DEPLOYER_PRIVATE_KEY=0x… ${networkVariable('RPC_URL', name)}=https://… ` +
          `${ownCommand} deploy --network ${name}; or remove ${name} from NETWORKS`,
      )
    }
    requireOwnToken(network, deployment)
    return { network, deployment, rpcUrls: requireRpcUrls(env, name) }
  })
}

/**
 * Rejects a deployment whose token differs from the token in `NETWORKS_FILE`: people would read one token there, but payments
 * would move the token of the deployment. The token of a shipped network may differ, because a local chain may simulate that network.
 */
function requireOwnToken({ name, usdc }: Network, deployment: Deployment): void {
  if (usdc === null || isShipped(name) || deployment.usdc === usdc) return
  throw new ConfigError(
    'DEPLOYMENTS_FILE',
    `${name} with the USDC of NETWORKS_FILE, ${usdc}`,
    deployment.usdc,
  )
}

/**
 * Returns the networks of `NETWORKS`, or those of {@link defaultNetworks} that have an RPC URL.
 *
 * @throws {ConfigError}
 */
export function readChosenNetworks(env: Environment): readonly NetworkName[] {
  loadNetworksFile(env)
  const chosen =
    readVariable(env, 'NETWORKS') ?? defaultNetworks.filter((name) => readRpcUrls(env, name) !== null)
  if (chosen.length > 0) return chosen
  const urls = defaultNetworks.map((name) => networkVariable('RPC_URL', name)).join(' or ')
  throw new ConfigError('NETWORKS', `${urls}, or here ${networkNameList.expected}`)
}

/** Returns the priority fee in wei; null: the node's suggestion. */
export function readPriorityFee(env: Environment): bigint | null {
  const wei = readVariable(env, 'PRIORITY_FEE_WEI')
  return wei === null ? null : BigInt(wei)
}

/** Returns the maximum ratio of a payment's gas cost to its fee; null: the network's default. */
export function readGasPerFee(env: Environment): bigint | null {
  const factor = readVariable(env, 'MAX_GAS_PER_FEE')
  return factor === null ? null : BigInt(factor)
}

/** @throws {ConfigError} for a file without deployments. */
export function readDeployments(env: Environment, place?: Place): Deployments {
  const path = findDeployments(env, place)
  if (path === undefined) return committedDeployments
  try {
    return parseDeployments(JSON.parse(readFileSync(path, 'utf8')))
  } catch (error) {
    // A missing file is no error, because the command `deploy` creates it later.
    if (error instanceof Error && 'code' in error && error.code === 'ENOENT') return {}
    throw new ConfigError('DEPLOYMENTS_FILE', 'a readable JSON file of deployments', `${path}: ${error}`)
  }
}
