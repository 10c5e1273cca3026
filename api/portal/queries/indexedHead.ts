import { type IndexedHead, isMissingIndex, readIndexedHead } from '#ledger/facts/indexedHead'
import { readRecordHead, readToldBlock } from '#ledger/facts/record'
import type { Database } from '#ledger/store/database'
import { networkByChainId, networkByName } from '#protocol/networks'
import { Refusal } from '../../http/refusal.ts'

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

/** How far the chain was read, for answers that depend on it. A view shows the chain as of this block, and says so. */
export type IndexedHeads = {
  /**
   * For what is read from the index: the last block that it holds whole.
   *
   * @throws {Refusal} `index_behind` where there is none, or where it is so far below a block of which providers were told
   *   something that it must be in the course of being rebuilt: what it doesn't show is not unsettled.
   */
  require(chainId: number): Promise<IndexedHead>
  /**
   * The same for each network that a provider has a wallet on, by the network's name.
   *
   * @param chainId only of this network
   */
  requireOfProvider(providerId: string, chainId?: number): Promise<Record<string, number>>
  /** For what is read from the record, which payments are: how far it goes. Null before anything was read into it. */
  recorded(chainId: number): Promise<number | null>
  /** The same for each network that a provider has a wallet on, as with `requireOfProvider`. */
  recordedOfProvider(providerId: string, chainId?: number): Promise<Record<string, number | null>>
}

/** @param options.maxLagBlocks Up to so many blocks a reorg may set the index back: no reason to refuse. */
export function createIndexedHeads({
  sql,
  maxLagBlocks,
}: {
  sql: Database
  maxLagBlocks: bigint
}): IndexedHeads {
  async function requireHead(chainId: number): Promise<IndexedHead> {
    const [head, told] = await Promise.all([readIndexedHead(sql, chainId), readToldBlock(sql, chainId)])
    if (head === null) throw new Refusal('index_behind', 'The index has not been built yet')
    if (head.blockNumber + maxLagBlocks < told) {
      throw new Refusal('index_behind', undefined, {
        details: { indexedBlock: Number(head.blockNumber), toldBlock: Number(told) },
      })
    }
    return head
  }

  async function readRecorded(chainId: number): Promise<number | null> {
    const head = await readRecordHead(sql, chainId)
    return head && Number(head.blockNumber)
  }

  async function ofProvider<Block>(
    providerId: string,
    chainId: number | undefined,
    read: (chainId: number) => Promise<Block>,
  ): Promise<Record<string, Block>> {
    const chains = await sql<{ chainId: number }[]>`
      select distinct chain_id as "chainId" from wallet where provider_id = ${providerId}
        ${chainId === undefined ? sql`` : sql`and chain_id = ${chainId}`}
      order by chain_id`
    const heads = await Promise.all(
      chains.map(async (chain) => [networkByChainId(chain.chainId).name, await read(chain.chainId)] as const),
    )
    return Object.fromEntries(heads)
  }

  return {
    require: requireHead,
    requireOfProvider: (providerId, chainId) =>
      ofProvider(providerId, chainId, async (id) => Number((await requireHead(id)).blockNumber)),
    recorded: readRecorded,
    recordedOfProvider: (providerId, chainId) => ofProvider(providerId, chainId, readRecorded),
  }
}

/** @param blocks of a provider's networks, by name; or of the one that was asked for */
export function isTestMoneyOnly(blocks: Record<string, unknown>): boolean {
  return Object.keys(blocks).every((name) => networkByName(name).testnet)
}
