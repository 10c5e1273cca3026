import type { Hash } from 'viem'
import type { ServedNetwork } from '#chain/servedNetworks'
import { readGasTokenPrice } from '#chain/settlementCost'
import type { Database } from '#ledger/store/database'
import { isUnreachable } from '#process/dependencies'

/** What a settlement view shows of a block, beyond what is indexed. Read from the chain once, then from our tables. */
export type BlockFacts = {
  /** Time of the block that gave it its depth; null while it's not that deep. */
  confirmedAt: Date | null
  /** USDC base units for 10^18 wei of the chain's gas token, at that block. */
  gasTokenUsd: bigint
}

export type BlockRef = { blockNumber: bigint; blockHash: Hash }

export async function readBlockFacts(
  sql: Database,
  served: ServedNetwork,
  { blocks, indexedBlock, gasTokenUsd }: { blocks: BlockRef[]; indexedBlock: bigint; gasTokenUsd: bigint },
): Promise<Map<Hash, BlockFacts>> {
  const distinct = new Map(blocks.map((block) => [block.blockHash, block]))
  const [confirmedAt, prices] = await Promise.all([
    confirmationTimes(sql, served, [...distinct.values()], indexedBlock),
    gasTokenPrices(sql, served, [...distinct.values()], gasTokenUsd),
  ])
  return new Map(
    [...distinct.keys()].map((hash) => [
      hash,
      { confirmedAt: confirmedAt.get(hash) ?? null, gasTokenUsd: prices.get(hash) ?? gasTokenUsd },
    ]),
  )
}

async function confirmationTimes(
  sql: Database,
  { network, client }: ServedNetwork,
  blocks: BlockRef[],
  indexedBlock: bigint,
): Promise<Map<Hash, Date>> {
  const { chainId } = network
  const depth = BigInt(network.confirmations)
  const deep = blocks.filter(({ blockNumber }) => blockNumber + depth <= indexedBlock)
  if (deep.length === 0) return new Map()
  const known = await sql<{ blockHash: Hash; confirmedAt: Date }[]>`
    select hash as "blockHash", confirmed_at as "confirmedAt" from recorded_block
    where chain_id = ${chainId} and confirmed_at is not null and (number, hash) in (
      select * from unnest(${deep.map(({ blockNumber }) => `${blockNumber}`)}::bigint[],
        ${deep.map(({ blockHash }) => blockHash)}::text[])
    )`
  const times = new Map(known.map(({ blockHash, confirmedAt }) => [blockHash, confirmedAt]))

  // What no recorder has written down yet. It alone does: by these rows it notices a reorg, and they are of one chain.
  await Promise.all(
    deep
      .filter(({ blockHash }) => !times.has(blockHash))
      .map(async ({ blockNumber, blockHash }) => {
        const { timestamp } = await client.getBlock({ blockNumber: blockNumber + depth })
        times.set(blockHash, new Date(Number(timestamp) * 1000))
      }),
  )
  return times
}

/** Without a feed, or where the node doesn't keep that block's state, the configured price holds. */
async function gasTokenPrices(
  sql: Database,
  { network, client }: ServedNetwork,
  blocks: BlockRef[],
  configured: bigint,
): Promise<Map<Hash, bigint>> {
  const { chainId, ethUsdFeed } = network
  if (ethUsdFeed === undefined || blocks.length === 0) return new Map()
  const known = await sql<{ blockHash: Hash; usd: bigint }[]>`
    select block_hash as "blockHash", usd from gas_token_price
    where chain_id = ${chainId} and block_hash in ${sql(blocks.map(({ blockHash }) => blockHash))}`
  const prices = new Map(known.map(({ blockHash, usd }) => [blockHash, usd]))

  const fresh = await Promise.all(
    blocks
      .filter(({ blockHash }) => !prices.has(blockHash))
      .map(async ({ blockNumber, blockHash }) => {
        try {
          const { usdPerToken, source } = await readGasTokenPrice(client, ethUsdFeed, configured, blockNumber)
          return source === 'feed' ? [{ blockHash, usd: usdPerToken }] : []
        } catch (error) {
          if (isUnreachable(error)) throw error
          return []
        }
      }),
  )
  const rows = fresh.flat()
  if (rows.length > 0) {
    const values = rows.map(({ blockHash, usd }) => ({ chain_id: chainId, block_hash: blockHash, usd }))
    await sql`insert into gas_token_price ${sql(values)} on conflict do nothing`
  }
  for (const { blockHash, usd } of rows) prices.set(blockHash, usd)
  return prices
}
