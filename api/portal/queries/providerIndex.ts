import type { Database } from '#ledger/database'
import { networkByChainId, networkByName } from '#protocol/networks'
import { requireIndexedHead } from './indexedHead.ts'

/**
 * How far the index has come on each network that a provider has a wallet on, by the network's name.
 *
 * @throws {Refusal} `index_behind` where the index of one of them can't be believed now
 */
export async function requireProviderIndex(
  sql: Database,
  providerId: string,
  chainId?: number,
): Promise<Record<string, number>> {
  const chains = await sql<{ chainId: number }[]>`
    select distinct chain_id as "chainId" from wallet where provider_id = ${providerId}
      ${chainId === undefined ? sql`` : sql`and chain_id = ${chainId}`}
    order by chain_id`
  const heads = await Promise.all(
    chains.map(async (chain): Promise<[string, number]> => {
      const { blockNumber } = await requireIndexedHead(sql, chain.chainId)
      return [networkByChainId(chain.chainId).name, Number(blockNumber)]
    }),
  )
  return Object.fromEntries(heads)
}

/** @param indexedBlocks of a provider's networks, by name; or of the one that was asked for */
export function isTestMoneyOnly(indexedBlocks: Record<string, number>): boolean {
  return Object.keys(indexedBlocks).every((name) => networkByName(name).testnet)
}
