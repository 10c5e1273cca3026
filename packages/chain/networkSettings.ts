import { readFileSync } from 'node:fs'
import { ConfigError, type Environment, isSet, readVariable, requireVariable } from '@tollkeeper/runtime/env'
import { ownCommand } from '@tollkeeper/runtime/ownCommand'
import { networkVariable, variables } from '@tollkeeper/runtime/variables'
import {
  committedDeployments,
  type Deployment,
  type Deployments,
  parseDeployments,
} from '@tollkeeper/sdk/protocol/deployments'
import { defaultNetworks, type Network, type NetworkName, networks } from '@tollkeeper/sdk/protocol/networks'
import { findDeployments, locateDeployments, type Place } from './deploymentsFile.ts'

/** The environment's settings of a network that this process serves. */
export type NetworkSettings = {
  network: Network
  deployment: Deployment
  /** Tried in this order; every one gets each broadcast. */
  rpcUrls: string[]
}

/**
 * Reads `NETWORKS`, `RPC_URL_<NETWORK>` and `DEPLOYMENTS_FILE`.
 *
 * @param place where to look for `deployments.json`. Default: where this process runs.
 * @param common the deployments of networks without a recorded one. They don't hold if `DEPLOYMENTS_FILE` is set: what it lacks is a
 *   mistake.
 * @throws {ConfigError}
 */
export function readNetworkSettings(
  env: Environment,
  place?: Place,
  common: Deployments = {},
): NetworkSettings[] {
  const chosen = readChosenNetworks(env)
  const recorded = readDeployments(env, place)
  const deployments = isSet(env, 'DEPLOYMENTS_FILE') ? recorded : { ...common, ...recorded }
  return chosen.map((name) => {
    const deployment = deployments[name]
    if (deployment === undefined) {
      throw new ConfigError(
        isSet(env, 'DEPLOYMENTS_FILE') ? 'DEPLOYMENTS_FILE' : 'NETWORKS',
        'a deployment of our contracts on each served network',
        `none on ${name} in ${locateDeployments(env, place)}. Deploy them, which records it there: ` +
          `DEPLOYER_PRIVATE_KEY=0x… ${networkVariable('RPC_URL', name)}=https://… ` +
          `${ownCommand} deploy --network ${name}; or leave ${name} out of NETWORKS`,
      )
    }
    return {
      network: networks[name],
      deployment,
      rpcUrls: requireVariable(env, networkVariable('RPC_URL', name)),
    }
  })
}

/**
 * `NETWORKS`, or those of {@link defaultNetworks} that have an RPC URL.
 *
 * @throws {ConfigError}
 */
export function readChosenNetworks(env: Environment): readonly NetworkName[] {
  const chosen =
    readVariable(env, 'NETWORKS') ??
    defaultNetworks.filter((name) => isSet(env, networkVariable('RPC_URL', name)))
  if (chosen.length > 0) return chosen
  const urls = defaultNetworks.map((name) => networkVariable('RPC_URL', name)).join(' or ')
  throw new ConfigError('NETWORKS', `${urls}, or here ${variables.NETWORKS.parser.expected}`)
}

/** Wei; null: the node's suggestion. */
export function readPriorityFee(env: Environment): bigint | null {
  const wei = readVariable(env, 'PRIORITY_FEE_WEI')
  return wei === null ? null : BigInt(wei)
}

/** How many times its fee a payment's gas may cost; null: the network's default. */
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
    // `deploy` makes the file.
    if (error instanceof Error && 'code' in error && error.code === 'ENOENT') return {}
    throw new ConfigError('DEPLOYMENTS_FILE', 'a readable JSON file of deployments', `${path}: ${error}`)
  }
}
