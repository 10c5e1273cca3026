import { readFileSync } from 'node:fs'
import { ConfigError, type Environment, isSet, readVariable, requireVariable } from '#process/env'
import { networkVariable, variables } from '#process/variables'
import { type Deployment, parseDeployments } from '#protocol/deployments'
import { type Network, networkNames, networks } from '#protocol/networks'

/** What the environment says of one network that this process is to serve. */
export type NetworkSettings = {
  network: Network
  deployment: Deployment
  /** Tried in this order; every one of them gets each broadcast. */
  rpcUrls: string[]
}

/**
 * Reads `NETWORKS`, `RPC_URL_<NETWORK>` and `DEPLOYMENTS_FILE`.
 *
 * Without `NETWORKS`, every network that has an RPC URL is served.
 *
 * @throws {ConfigError}
 */
export function readNetworkSettings(env: Environment): NetworkSettings[] {
  const chosen =
    readVariable(env, 'NETWORKS') ??
    networkNames.filter((name) => isSet(env, networkVariable('RPC_URL', name)))
  if (chosen.length === 0) throw new ConfigError('NETWORKS', variables.NETWORKS.parser.expected)

  const deployments = parseDeployments(readDeployments(readVariable(env, 'DEPLOYMENTS_FILE')))
  return chosen.map((name) => {
    const deployment = deployments[name]
    if (deployment === undefined) {
      throw new ConfigError(
        isSet(env, 'DEPLOYMENTS_FILE') ? 'DEPLOYMENTS_FILE' : 'NETWORKS',
        `a BatchSettlement deployment for each served network (npm run deploy -- --network ${name})`,
        `none for ${name}`,
      )
    }
    return {
      network: networks[name],
      deployment,
      rpcUrls: requireVariable(env, networkVariable('RPC_URL', name)),
    }
  })
}

/** Wei; null: what the node suggests. */
export function readPriorityFee(env: Environment): bigint | null {
  const wei = readVariable(env, 'PRIORITY_FEE_WEI')
  return wei === null ? null : BigInt(wei)
}

const committedDeployments = new URL('../sdk/src/protocol/deployments.json', import.meta.url)

function readDeployments(path: string | null): unknown {
  try {
    return JSON.parse(readFileSync(path ?? committedDeployments, 'utf8'))
  } catch (error) {
    throw new ConfigError('DEPLOYMENTS_FILE', 'the path of a readable JSON file', String(error))
  }
}
