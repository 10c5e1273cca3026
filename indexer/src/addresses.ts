import type { Context } from 'ponder:registry'
import type { Hex } from 'viem'
import type { Addresses } from './receipt.ts'

/** Returns the contracts' addresses on a chain, in lower case. */
export function addressesOf({ chain, contracts }: Pick<Context, 'chain' | 'contracts'>): Addresses {
  const [settlement, tabSettlement] = contracts.BatchSettlement.address ?? []
  const token = contracts.Usdc.address
  const platforms = contracts.Platform.address
  if (!settlement || !tabSettlement || !token || !platforms)
    throw new Error(`a contract has no address on ${chain.name}`)
  return {
    settlement: settlement.toLowerCase() as Hex,
    tabSettlement: tabSettlement.toLowerCase() as Hex,
    token: token.toLowerCase() as Hex,
    platforms: platforms.map((address) => address.toLowerCase() as Hex),
  }
}
