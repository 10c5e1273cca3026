import type { Context } from 'ponder:registry'
import type { Hex } from 'viem'
import type { Addresses } from './receipt.ts'

/** The contracts of a chain, lower-case. */
export function addressesOf({ chain, contracts }: Pick<Context, 'chain' | 'contracts'>): Addresses {
  const [settlement, token] = [contracts.BatchSettlement.address, contracts.Usdc.address]
  if (!settlement || !token) throw new Error(`a contract has no address on ${chain.name}`)
  return { settlement: settlement.toLowerCase() as Hex, token: token.toLowerCase() as Hex }
}
