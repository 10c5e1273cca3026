import type { Database } from '#ledger/database'
import { networkByChainId } from '#protocol/networks'
import { requireIndexedHead } from './indexedHead.ts'

/**
 * How far the index has come on each network that a provider has a wallet on, by the network's name.
 *
 * @throws {Refusal} `index_behind` where the index of one of them can't be believed now
 */
export async function requireProviderIndex(
  database: Database,
  providerId: string,
  chainId?: number,
): Promise<Record<string, number>> {
  const chains = await database<{ chainId: number }[]>`
    select distinct chain_id as "chainId" from wallet where provider_id = ${providerId}
      ${chainId === undefined ? database`` : database`and chain_id = ${chainId}`}
    order by chain_id`
  const heads = await Promise.all(
    chains.map(async (chain): Promise<[string, number]> => {
      const { blockNumber } = await requireIndexedHead(database, chain.chainId)
      return [networkByChainId(chain.chainId).name, Number(blockNumber)]
    }),
  )
  return Object.fromEntries(heads)
}
