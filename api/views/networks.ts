import { z } from '@hono/zod-openapi'
import { isNetworkName, networks as known } from '@tollkeeper/sdk/protocol/networks'
import { view } from '../http/view.ts'
import * as wire from '../http/wire.ts'
import type { GatewayNetworks } from '../registry/networks.ts'

export const networkList = z
  .object({
    networks: z.array(
      z.object({
        network: wire.networkName,
        chainId: z.int(),
        testnet: wire.testnet,
        asset: wire.addressOut
          .nullable()
          .openapi({ description: 'USDC; null: this gateway knows none there' }),
        status: z.enum(['served', 'later']).openapi({
          description:
            '`served`: it can be paid and settles there. `later`: it has a name, and can not be paid there yet',
        }),
      }),
    ),
  })
  .openapi('NetworkList')

export const addNetworksRoute = view('/networks', {
  summary: 'The networks that payments settle on, and those that are announced for later',
  description: 'The first one is used where a request names none.',
  tags: ['Network'],
  answer: ['The networks', networkList],
  open:
    ({ networks }: { networks: GatewayNetworks }) =>
    async () => {
      const served = [...networks.byChainId.values()].map(({ served: { network, token } }) => ({
        network: network.name,
        chainId: network.chainId,
        testnet: network.testnet,
        asset: token,
        status: 'served' as const,
      }))
      const isServed = new Set(served.map(({ network }) => network))
      const later = Object.values(known)
        // For development only.
        .filter(({ name }) => isNetworkName(name) && name !== 'localhost' && !isServed.has(name))
        .map(({ name, chainId, testnet, usdc }) => ({
          network: name,
          chainId,
          testnet,
          asset: usdc,
          status: 'later' as const,
        }))
      return { networks: [...served, ...later] }
    },
})
