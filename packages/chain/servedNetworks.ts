import { ChainUnavailable, isUnreachable } from '@tollkeeper/runtime/dependencies'
import { ownCommand } from '@tollkeeper/runtime/ownCommand'
import { networkVariable } from '@tollkeeper/runtime/variables'
import { keepRefusal } from '@tollkeeper/sdk/nodes/nodeErrors'
import { usdcAbi } from '@tollkeeper/sdk/protocol/abi/usdc'
import type { Deployment } from '@tollkeeper/sdk/protocol/deployments'
import { domainSeparator, eip712Domain } from '@tollkeeper/sdk/protocol/eip3009'
import type { Network } from '@tollkeeper/sdk/protocol/networks'
import {
  type Address,
  createPublicClient,
  type Hex,
  http,
  type PublicClient,
  type Transport,
  BaseError as ViemError,
} from 'viem'
import type { NetworkSettings } from './networkSettings.ts'
import { createNodes } from './nodes.ts'

/** A network whose chain was found to match our table. */
export type ServedNetwork = {
  network: Network
  deployment: Deployment
  /** USDC there, lower-case. */
  token: Address
  /** Reads through the first node in good standing, and through the others if it fails. */
  client: PublicClient
  /** One reader for each node that answers, for what must be read or sent everywhere. */
  readonly clients: PublicClient[]
  /** The token's own `DOMAIN_SEPARATOR()`, equal to the one computed from our table. */
  domainSeparator: Hex
}

export type OpenServedNetworksOptions = {
  /** Milliseconds that one RPC call may take; default 10,000. */
  timeoutMs?: number
  /** Milliseconds that a node has to tell its head if there are several nodes; default 2,000. */
  probeTimeoutMs?: number
  /** Milliseconds between two looks at a chain's head; default 1,000. */
  pollingIntervalMs?: number
  /**
   * Called for a network whose nodes don't answer. It is served all the same, and its first answered call checks the
   * chain first. Default: such a network is an error.
   */
  onUnreachable?: (network: Network, error: Error) => void
}

/**
 * Connects to each network, and refuses it unless chain id, the token's EIP-712 domain and the BatchSettlement contract
 * match our tables: with a wrong domain, every signature would be worthless.
 *
 * @throws Error that names the network, what was expected, what the chain answered and which variable to look at.
 */
export async function openServedNetworks(
  settings: NetworkSettings[],
  options: OpenServedNetworksOptions = {},
): Promise<ServedNetwork[]> {
  return Promise.all(settings.map((one) => openServedNetwork(one, options)))
}

async function openServedNetwork(
  { network, deployment, rpcUrls }: NetworkSettings,
  options: OpenServedNetworksOptions,
): Promise<ServedNetwork> {
  const { timeoutMs = 10_000, probeTimeoutMs = 2_000, pollingIntervalMs = 1_000, onUnreachable } = options
  // Calls of one tick travel as one HTTP request.
  const transports = rpcUrls.map((url) =>
    http(url, { timeout: timeoutMs, batch: { batchSize: 200, wait: 0 }, onFetchResponse: keepRefusal }),
  ) as [Transport, ...Transport[]]
  const shared = { pollingInterval: pollingIntervalMs, cacheTime: 0 }
  const { chainId } = network
  const nodes = createNodes(transports, { chainId, probeTimeoutMs, now: () => performance.now() })
  const token = deployment.usdc.toLowerCase() as Address

  const unchecked = createPublicClient({ ...shared, transport: nodes.transport })
  let isChecked = false
  let checking: Promise<void> | undefined
  const check = (): Promise<void> => {
    checking ??= checkChain(unchecked, { network, deployment, token })
      .then(() => {
        isChecked = true
      })
      .finally(() => {
        checking = undefined
      })
    return checking
  }
  const afterCheck = (transport: Transport): Transport => {
    return (parameters) => {
      const inner = transport(parameters)
      const request: typeof inner.request = async (args, options) => {
        if (!isChecked) await check().catch(throwAsViem)
        return inner.request(args, options)
      }
      return { ...inner, request }
    }
  }
  await check().catch((error: unknown) => {
    if (!(error instanceof ChainUnavailable) || onUnreachable === undefined) throw error
    onUnreachable(network, error)
  })

  const clients = transports.map((one) => createPublicClient({ ...shared, transport: afterCheck(one) }))
  return {
    network,
    deployment,
    token,
    client: createPublicClient({ ...shared, transport: afterCheck(nodes.transport) }),
    get clients() {
      const present = nodes.present()
      return clients.filter((_, index) => present[index])
    },
    domainSeparator: domainSeparator(eip712Domain(network, token)),
  }
}

/**
 * viem takes any error with `details` for its own, expects text there, and would fail itself on our `details`.
 * The caller still finds our error as the cause.
 */
function throwAsViem(error: unknown): never {
  if (error instanceof ChainUnavailable) throw new ViemError('The chain does not answer', { cause: error })
  throw error
}

/**
 * @throws {ChainUnavailable} if the chain doesn't answer.
 * @throws Error if it doesn't match our tables.
 */
async function checkChain(
  client: PublicClient,
  { network, deployment, token }: Pick<ServedNetwork, 'network' | 'deployment' | 'token'>,
): Promise<void> {
  const domain = eip712Domain(network, token)
  const [chainId, name, version, separator, code] = await Promise.all([
    client.getChainId(),
    client.readContract({ address: token, abi: usdcAbi, functionName: 'name' }),
    client.readContract({ address: token, abi: usdcAbi, functionName: 'version' }),
    client.readContract({ address: token, abi: usdcAbi, functionName: 'DOMAIN_SEPARATOR' }),
    client.getCode({ address: deployment.batchSettlement }),
  ]).catch((error: unknown) => {
    const reason = error instanceof Error && 'shortMessage' in error ? error.shortMessage : String(error)
    const message =
      `${network.name}: could not read the chain and its USDC at ${token} (${reason}); ` +
      `check ${networkVariable('RPC_URL', network.name)} and DEPLOYMENTS_FILE`
    throw isUnreachable(error) ? new ChainUnavailable(message, { cause: error }) : new Error(message)
  })
  requireEqual(network, 'chain id', network.chainId, chainId)
  requireEqual(network, `name() of USDC at ${token}`, domain.name, name)
  requireEqual(network, `version() of USDC at ${token}`, domain.version, version)
  requireEqual(network, `DOMAIN_SEPARATOR() of USDC at ${token}`, domainSeparator(domain), separator)
  if (code === undefined) {
    throw new Error(
      `${network.name}: there is no BatchSettlement at ${deployment.batchSettlement}; ` +
        `deploy it (${ownCommand} deploy --network ${network.name}) or correct DEPLOYMENTS_FILE`,
    )
  }
}

function requireEqual(network: Network, what: string, expected: string | number, got: string | number): void {
  if (expected === got) return
  throw new Error(
    `${network.name}: ${what} should be ${expected}, the chain says ${got}; ` +
      `check ${networkVariable('RPC_URL', network.name)} and DEPLOYMENTS_FILE`,
  )
}
