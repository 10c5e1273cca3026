import { priceFeedOf } from '@tollkeeper/chain/priceFeeds'
import type { ServedNetwork } from '@tollkeeper/chain/servedNetworks'
import { readGasTokenPrice } from '@tollkeeper/chain/settlementCost'
import type { Database } from '@tollkeeper/ledger/store/database'
import { isUnreachable } from '@tollkeeper/runtime/dependencies'
import type { Hash } from 'viem'

/** A block as the database has it; null for values that aren't known yet. */
export type BlockRow = {
  blockNumber: bigint
  blockHash: Hash
  /** Time of the block that gave this block its required confirmations. */
  confirmedAt: Date | null
  /** USDC base units for 10^18 wei of the chain's gas token at that block. */
  gasTokenUsd: bigint | null
}

/**
 * Adds confirmation times to blocks that have none stored yet. It doesn't write the times to the database: only the recorder stores them,
 * because it uses them to detect reorgs. All blocks must be on the same chain.
 *
 * @param recordedBlock the newest block that the record covers.
 */
export async function addConfirmations(
  { network, client }: ServedNetwork,
  blocks: readonly Omit<BlockRow, 'gasTokenUsd'>[],
  recordedBlock: number,
): Promise<void> {
  const depth = BigInt(network.confirmations)
  const deep = blocks.filter(
    ({ confirmedAt, blockNumber }) => confirmedAt === null && blockNumber + depth <= BigInt(recordedBlock),
  )
  const times = new Map<bigint, Promise<Date>>()
  const timeOf = async (blockNumber: bigint) => {
    const { timestamp } = await client.getBlock({ blockNumber: blockNumber + depth })
    return new Date(Number(timestamp) * 1000)
  }
  for (const { blockNumber } of deep) if (!times.has(blockNumber)) times.set(blockNumber, timeOf(blockNumber))
  await Promise.all(
    deep.map(async (block) => {
      block.confirmedAt = (await times.get(block.blockNumber)) ?? null
    }),
  )
}

/**
 * Adds missing gas token prices to blocks and stores them. A price stays null if there is no feed, or if no node has that block's state.
 */
export async function addGasTokenPrices(
  sql: Database,
  { network, client }: ServedNetwork,
  blocks: readonly Omit<BlockRow, 'confirmedAt'>[],
): Promise<void> {
  const unknown = blocks.filter(({ gasTokenUsd }) => gasTokenUsd === null)
  if (priceFeedOf(network) === undefined || unknown.length === 0) return
  const distinct = new Map(unknown.map(({ blockHash, blockNumber }) => [blockHash, blockNumber]))
  const fresh = await Promise.all(
    [...distinct].map(async ([blockHash, blockNumber]): Promise<[Hash, bigint][]> => {
      try {
        const { usdPerToken, source } = await readGasTokenPrice(client, network, 0n, blockNumber)
        return source === 'feed' ? [[blockHash, usdPerToken]] : []
      } catch (error) {
        if (isUnreachable(error)) throw error
        return []
      }
    }),
  )
  const prices = new Map(fresh.flat())
  if (prices.size > 0) {
    const values = [...prices].map(([block_hash, usd]) => ({ chain_id: network.chainId, block_hash, usd }))
    await sql`insert into gas_token_price ${sql(values)} on conflict do nothing`
  }
  for (const block of unknown) block.gasTokenUsd = prices.get(block.blockHash) ?? null
}
