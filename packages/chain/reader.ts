import { keepRefusal } from '@tollkeeper/sdk/nodes/nodeErrors'
import { createPublicClient, http, type PublicClient, type Transport } from 'viem'
import type { NetworkSettings } from './networkSettings.ts'
import { createNodes } from './nodes.ts'

const timeoutMs = 4_000
const probeTimeoutMs = 2_000

/**
 * Creates a client that reads a chain through the first healthy node, and through the others if that node fails. It sends nothing
 * before the first call, and caches nothing.
 */
export function openReader({ network, rpcUrls }: NetworkSettings): PublicClient {
  const transports = rpcUrls.map((url) =>
    http(url, { timeout: timeoutMs, retryCount: 1, onFetchResponse: keepRefusal }),
  ) as [Transport, ...Transport[]]
  const { chainId, blockTimeMs } = network
  const nodes = createNodes(transports, {
    chainId,
    blockTimeMs,
    probeTimeoutMs,
    now: () => performance.now(),
  })
  return createPublicClient({ transport: nodes.transport, cacheTime: 0 })
}
