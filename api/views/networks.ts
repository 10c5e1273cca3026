import { z } from '@hono/zod-openapi'
import type { SalesSwitch } from '@tollkeeper/ledger/registry/salesStop'
import { networks as known, type Network } from '@tollkeeper/sdk/protocol/networks'
import { salesState, toSalesState } from '../http/salesState.ts'
import { view } from '../http/view.ts'
import * as wire from '../http/wire.ts'
import type { GatewayNetworks } from '../registry/networks.ts'

export const networkList = z
  .object({
    sales: salesState,
    networks: z.array(
      z.object({
        network: wire.networkName,
        chainId: z.int(),
        testnet: wire.testnet,
        asset: wire.addressOut
          .nullable()
          .openapi({ description: 'Address of USDC; null: this gateway knows no USDC on this network' }),
        eip712: z.object({ name: z.string(), version: z.string() }).openapi({
          description:
            "The token's EIP-712 domain, for comparison: buyers should know it and not trust any server for it",
        }),
        confirmations: z.int(),
        blockTimeMs: z.int(),
        explorerUrl: z.string().nullable(),
        status: z.enum(['served', 'later']).openapi({
          description:
            '`served`: payments are accepted and settled on it. `later`: it is announced, but can not be used for payments yet',
        }),
      }),
    ),
  })
  .openapi('NetworkList')

export const addNetworksRoute = view('/networks', {
  summary: 'Networks on which payments settle, and networks that are announced but can not be used yet',
  description: 'The first one is used if a request names none.',
  tags: ['Network'],
  answer: ['The networks', networkList],
  open:
    ({ networks, sales }: { networks: GatewayNetworks; sales: SalesSwitch }) =>
    async () => {
      const served = [...networks.byChainId.values()].map(({ served: { network, token } }) => ({
        ...factsOf(network),
        asset: token,
        status: 'served' as const,
      }))
      const isServed = new Set(served.map(({ network }) => network))
      const later = Object.values(known)
        // This network is for development only.
        .filter(({ name }) => name !== 'localhost' && !isServed.has(name))
        .map((network) => ({ ...factsOf(network), asset: network.usdc, status: 'later' as const }))
      return { sales: toSalesState(await sales.read()), networks: [...served, ...later] }
    },
})

function factsOf({ name, chainId, testnet, eip712, confirmations, blockTimeMs, explorerUrl }: Network) {
  return {
    network: name,
    chainId,
    testnet,
    eip712,
    confirmations,
    blockTimeMs,
    explorerUrl: explorerUrl ?? null,
  }
}
