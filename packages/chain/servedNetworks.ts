import { ChainUnavailable, isUnreachable } from '@tollkeeper/runtime/dependencies'
import { ownCommand } from '@tollkeeper/runtime/ownCommand'
import { networkVariable } from '@tollkeeper/runtime/variables'
import { keepRefusal } from '@tollkeeper/sdk/nodes/nodeErrors'
import { usdcAbi } from '@tollkeeper/sdk/protocol/abi/usdc'
import type { Deployment } from '@tollkeeper/sdk/protocol/deployments'
import { domainSeparator, eip712Domain } from '@tollkeeper/sdk/protocol/eip3009'
import { isShipped } from '@tollkeeper/sdk/protocol/networkDefinition'
import type { Network } from '@tollkeeper/sdk/protocol/networks'
import {
  type Address,
  createPublicClient,
  type Hex,
  http,
  type PublicClient,
  type Transport,
  BaseError as ViemError,
  zeroAddress,
  zeroHash,
} from 'viem'
import type { NetworkSettings } from './networkSettings.ts'
import { createNodes } from './nodes.ts'

/** A network that this process serves. Its chain was checked against our tables of networks and deployments. */
export type ServedNetwork = {
  network: Network
  deployment: Deployment
  /** The address of USDC on this network, in lower case. */
  token: Address
  /** Reads through the first healthy node, and through the others if that node fails. */
  client: PublicClient
  /** One reader for each node that responds, for calls that must go to every node. */
  readonly clients: PublicClient[]
  /** The result of the token's `DOMAIN_SEPARATOR()`, which equals the one computed from our table. */
  domainSeparator: Hex
}

export type OpenServedNetworksOptions = {
  /** Timeout in ms of one RPC call; default 10,000. */
  timeoutMs?: number
  /** Timeout in ms for a node to return its head, if there are several nodes; default 2,000. */
  probeTimeoutMs?: number
  /** Interval in ms between reads of a chain's head; default 1,000. */
  pollingIntervalMs?: number
  /**
   * Called for a network whose nodes aren't responding. That network is served anyway, and the first successful call to it checks
   * its chain. Default: the error is thrown.
   */
  onUnreachable?: (network: Network, error: Error) => void
}

/**
 * Connects to each network. Rejects a network if its chain id, the token's EIP-712 domain or the BatchSettlement contract differs from our tables.
 * With a wrong domain, for example, the token would reject every signature. The token must also have six decimals and support
 * EIP-3009's nonces, because a network of `NETWORKS_FILE` may name any contract.
 *
 * @throws Error that names the network, the expected value, the chain's value and the variable to check.
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
  // Calls made in one tick are sent as one HTTP request.
  const transports = rpcUrls.map((url) =>
    http(url, { timeout: timeoutMs, batch: { batchSize: 200, wait: 0 }, onFetchResponse: keepRefusal }),
  ) as [Transport, ...Transport[]]
  const shared = { pollingInterval: pollingIntervalMs, cacheTime: 0 }
  const { chainId, blockTimeMs } = network
  const nodes = createNodes(transports, {
    chainId,
    blockTimeMs,
    probeTimeoutMs,
    now: () => performance.now(),
  })
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
 * Throws an error in viem's form. viem treats any error with `details` as its own and expects text there, so it would fail on our
 * `details`. The caller still finds our error as the cause.
 */
function throwAsViem(error: unknown): never {
  if (error instanceof ChainUnavailable) throw new ViemError('The chain is not responding', { cause: error })
  throw error
}

/**
 * @throws {ChainUnavailable} if the chain isn't responding.
 * @throws Error if the chain doesn't match our tables.
 */
async function checkChain(
  client: PublicClient,
  { network, deployment, token }: Pick<ServedNetwork, 'network' | 'deployment' | 'token'>,
): Promise<void> {
  const domain = eip712Domain(network, token)
  const [chainId, name, version, separator, decimals, isUsed, code] = await Promise.all([
    client.getChainId(),
    client.readContract({ address: token, abi: usdcAbi, functionName: 'name' }),
    client.readContract({ address: token, abi: usdcAbi, functionName: 'version' }),
    client.readContract({ address: token, abi: usdcAbi, functionName: 'DOMAIN_SEPARATOR' }),
    client.readContract({ address: token, abi: usdcAbi, functionName: 'decimals' }),
    client.readContract({
      address: token,
      abi: usdcAbi,
      functionName: 'authorizationState',
      args: [zeroAddress, zeroHash],
    }),
    client.getCode({ address: deployment.batchSettlement }),
  ]).catch((error: unknown) => {
    const reason = error instanceof Error && 'shortMessage' in error ? error.shortMessage : String(error)
    const message =
      `${network.name}: could not read the chain and its USDC at ${token} (${reason}); ` +
      `check ${sourcesOf(network)}`
    throw isUnreachable(error) ? new ChainUnavailable(message, { cause: error }) : new Error(message)
  })
  requireEqual(network, 'chain id', network.chainId, chainId)
  requireEqual(network, `name() of USDC at ${token}`, domain.name, name)
  requireEqual(network, `version() of USDC at ${token}`, domain.version, version)
  requireEqual(network, `DOMAIN_SEPARATOR() of USDC at ${token}`, domainSeparator(domain), separator)
  requireEqual(network, `decimals() of USDC at ${token}`, 6, decimals)
  requireEqual(
    network,
    `authorizationState() of USDC at ${token} for no one's nonce`,
    'unused',
    isUsed ? 'used' : 'unused',
  )
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
    `${network.name}: ${what} should be ${expected}, but on the chain it is ${got}; ` +
      `check ${sourcesOf(network)}`,
  )
}

/** Returns the settings in which the operator can correct the value. */
function sourcesOf({ name }: Network): string {
  const variable = networkVariable('RPC_URL', name)
  return isShipped(name)
    ? `${variable} and DEPLOYMENTS_FILE`
    : `${variable}, NETWORKS_FILE and DEPLOYMENTS_FILE`
}
