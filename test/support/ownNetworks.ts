import { isShipped, removeNetwork } from '@tollkeeper/sdk/protocol/networkDefinition'
import { networks } from '@tollkeeper/sdk/protocol/networks'
import { afterAll } from 'vitest'

/**
 * Removes the networks that a file's tests defined after them, because other files' tests share the process.
 */
export function forgetOwnNetworks(): void {
  afterAll(() => {
    for (const network of Object.values(networks)) if (!isShipped(network.name)) removeNetwork(network)
  })
}
