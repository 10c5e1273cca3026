import { readFileSync } from 'node:fs'
import { type Deployment, parseDeployments } from '#protocol/deployments'
import { type Network, type NetworkName, networks } from '#protocol/networks'

/** What the environment says of one network that this process is to serve. */
export type NetworkSettings = {
  network: Network
  deployment: Deployment
  /** Tried in this order; every one of them gets each broadcast. */
  rpcUrls: string[]
}

/** The environment is wrong; the message names the variable, what was expected and what came. */
export class ConfigError extends Error {
  override name = 'ConfigError'

  constructor(variable: string, expected: string, got?: string) {
    super(`${variable}: expected ${expected}${got === undefined ? ', but it is not set' : `, got ${got}`}`)
  }
}

/** Name of the variable that holds a network's RPC URLs: `RPC_URL_BASE_SEPOLIA` for `base-sepolia`. */
export function rpcUrlVariable(network: NetworkName): string {
  return `RPC_URL_${network.toUpperCase().replaceAll('-', '_')}`
}

/**
 * Reads `NETWORKS`, `RPC_URL_<NETWORK>` and `DEPLOYMENTS_FILE`.
 *
 * Without `NETWORKS`, every network that has an RPC URL is served.
 */
export function parseNetworkSettings(env: Record<string, string | undefined>): NetworkSettings[] {
  const known = Object.keys(networks) as NetworkName[]
  const named = env.NETWORKS?.split(',')
    .map((name) => name.trim())
    .filter((name) => name !== '')
  const chosen = named ?? known.filter((name) => env[rpcUrlVariable(name)])
  if (chosen.length === 0) {
    throw new ConfigError('NETWORKS', `a comma-separated list of ${known.join(', ')}`, env.NETWORKS)
  }

  const deployments = parseDeployments(readDeployments(env.DEPLOYMENTS_FILE))
  return [...new Set(chosen)].map((name) => {
    const network = known.includes(name as NetworkName) ? networks[name as NetworkName] : undefined
    if (network === undefined) throw new ConfigError('NETWORKS', `names among ${known.join(', ')}`, name)

    const deployment = deployments[network.name]
    if (deployment === undefined) {
      throw new ConfigError(
        env.DEPLOYMENTS_FILE === undefined ? 'NETWORKS' : 'DEPLOYMENTS_FILE',
        `a BatchSettlement deployment for each served network (npm run deploy -- --network ${name})`,
        `none for ${name}`,
      )
    }

    const variable = rpcUrlVariable(network.name)
    const rpcUrls = (env[variable] ?? '')
      .split(',')
      .map((url) => url.trim())
      .filter((url) => url !== '')
    // An RPC URL often carries a credential, so what came is not repeated.
    if (rpcUrls.length === 0)
      throw new ConfigError(variable, 'an http(s) URL, or several with commas between')
    if (!rpcUrls.every((url) => URL.canParse(url) && /^https?:$/.test(new URL(url).protocol))) {
      throw new ConfigError(variable, 'an http(s) URL, or several with commas between', 'something else')
    }
    return { network, deployment, rpcUrls }
  })
}

const committedDeployments = new URL('../sdk/src/protocol/deployments.json', import.meta.url)

function readDeployments(path: string | undefined): unknown {
  try {
    return JSON.parse(readFileSync(path ?? committedDeployments, 'utf8'))
  } catch (error) {
    throw new ConfigError('DEPLOYMENTS_FILE', 'the path of a readable JSON file', String(error))
  }
}
