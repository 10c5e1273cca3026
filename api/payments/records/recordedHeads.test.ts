import { networks, type ShippedNetworkName } from '@tollkeeper/sdk/protocol/networks'
import { expect, test } from 'vitest'
import type { GatewayNetworks } from '../../registry/networks.ts'
import { isTestMoneyOnly } from './recordedHeads.ts'

/** A gateway that serves these networks, with only the fields needed here. */
const serving = (...names: ShippedNetworkName[]) => ({
  byChainId: new Map(
    names.map((name) => [networks[name].chainId, { served: { network: networks[name] } }]),
  ) as unknown as GatewayNetworks['byChainId'],
})

test.each([
  [['base'], {}, false],
  [['base', 'base-sepolia'], {}, false],
  [['base-sepolia'], {}, true],
  [['base', 'base-sepolia'], { 'base-sepolia': 7 }, true],
  [['base', 'base-sepolia'], { base: null, 'base-sepolia': 7 }, false],
] as const)(
  'behavior: on a gateway with %j, a provider with wallets on %j takes only test money: %s',
  (served, own, is) => {
    expect(isTestMoneyOnly(own, serving(...served))).toBe(is)
  },
)
