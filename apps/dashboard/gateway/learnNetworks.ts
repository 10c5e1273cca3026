import { isNetworkName } from '@tollkeeper/sdk/protocol/networks'
import type { NetworkList } from './answers.ts'
import type { Gateway } from './gateway.ts'

/**
 * Reads the networks that the operator described in a file, so that pages can show their names, explorers and kind of money.
 *
 * @returns whether the operator described any networks. Errors are ignored here: if the gateway isn't responding, the pages report it.
 */
export async function learnNetworks(gateway: Gateway): Promise<boolean> {
  try {
    const { networks } = await gateway.get<NetworkList>('networks')
    const unknown = networks.filter(({ network, status }) => status === 'served' && !isNetworkName(network))
    if (unknown.length === 0) return false
    const definitions = unknown.map(({ network, asset, explorerUrl, ...facts }) => {
      const { chainId, testnet, eip712, confirmations, blockTimeMs } = facts
      const explorer = explorerUrl === null ? {} : { explorerUrl }
      return [network, { chainId, usdc: asset, testnet, eip712, confirmations, blockTimeMs, ...explorer }]
    })
    // Few gateways have such networks, so the pages' main code doesn't include the code that validates them.
    const { defineNetworks } = await import('@tollkeeper/sdk/protocol/networkDefinition')
    return defineNetworks(Object.fromEntries(definitions)).length > 0
  } catch {
    return false
  }
}
