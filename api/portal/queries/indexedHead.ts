import type { Database } from '#ledger/database'
import { type IndexedHead, isMissingIndex, readActedBlock, readIndexedHead } from '#ledger/indexedHead'
import { networkByChainId, networkByName } from '#protocol/networks'
import { Refusal } from '../../refusal.ts'

/** Runs a query over the index; its absence becomes `index_behind`. */
export async function fromIndex<T>(query: Promise<T>): Promise<T> {
  try {
    return await query
  } catch (error) {
    if (isMissingIndex(error))
      throw new Refusal('index_behind', 'The index is being deployed', { cause: error })
    throw error
  }
}

/** How far the index has come, for answers that depend on it. */
export type IndexedHeads = {
  /**
   * The last block that the index holds whole. A view shows the chain as of this block, and says so.
   *
   * @throws {Refusal} `index_behind` where there is none, or where it is so far below a block on which the keeper acted
   *   that the index must be in the course of being rebuilt: what it doesn't show is not unsettled.
   */
  require(chainId: number): Promise<IndexedHead>
  /**
   * The same for each network that a provider has a wallet on, by the network's name.
   *
   * @param chainId only of this network
   */
  requireOfProvider(providerId: string, chainId?: number): Promise<Record<string, number>>
}

/**
 * @param options.maxLagBlocks What was mined a moment ago is not indexed yet, and the keeper has acted on it already. Up
 *   to so many blocks that is the usual course of things and no reason to refuse.
 */
export function createIndexedHeads({
  sql,
  maxLagBlocks,
}: {
  sql: Database
  maxLagBlocks: bigint
}): IndexedHeads {
  async function requireHead(chainId: number): Promise<IndexedHead> {
    const [head, acted] = await Promise.all([readIndexedHead(sql, chainId), readActedBlock(sql, chainId)])
    if (head === null) throw new Refusal('index_behind', 'The index has not been built yet')
    if (head.blockNumber + maxLagBlocks < acted) {
      throw new Refusal('index_behind', undefined, {
        details: { indexedBlock: Number(head.blockNumber), actedBlock: Number(acted) },
      })
    }
    return head
  }

  return {
    require: requireHead,
    async requireOfProvider(providerId, chainId) {
      const chains = await sql<{ chainId: number }[]>`
        select distinct chain_id as "chainId" from wallet where provider_id = ${providerId}
          ${chainId === undefined ? sql`` : sql`and chain_id = ${chainId}`}
        order by chain_id`
      const heads = await Promise.all(
        chains.map(async (chain): Promise<[string, number]> => {
          const { blockNumber } = await requireHead(chain.chainId)
          return [networkByChainId(chain.chainId).name, Number(blockNumber)]
        }),
      )
      return Object.fromEntries(heads)
    },
  }
}

/** @param indexedBlocks of a provider's networks, by name; or of the one that was asked for */
export function isTestMoneyOnly(indexedBlocks: Record<string, number>): boolean {
  return Object.keys(indexedBlocks).every((name) => networkByName(name).testnet)
}
