import { isShipped, removeNetwork } from '@tollkeeper/sdk/protocol/networkDefinition'
import { networks } from '@tollkeeper/sdk/protocol/networks'
import { afterAll } from 'vitest'

/**
 * After the tests of a file, removes the networks that they defined, because other files' tests run in the same process.
 */
export function forgetOwnNetworks(): void {
  afterAll(() => {
    for (const network of Object.values(networks)) if (!isShipped(network.name)) removeNetwork(network)
  })
}
