import type { Queryable } from './database.ts'

export type UnconfirmedBlock = { blockNumber: bigint; blockHash: string }

/**
 * The blocks with settlements that have reached their depth at `safeBlock` and whose confirmation isn't written down.
 *
 * @param sinceBlock Blocks below were looked at before.
 */
export async function readUnconfirmedBlocks(
  sql: Queryable,
  scope: { chainId: number },
  sinceBlock: bigint,
  safeBlock: bigint,
): Promise<UnconfirmedBlock[]> {
  const { chainId } = scope
  return sql<UnconfirmedBlock[]>`
    select seen.block_number as "blockNumber", seen.block_hash as "blockHash"
    from (
      select block_number, block_hash from indexer.batch
      where chain_id = ${chainId} and block_number between ${sinceBlock} and ${safeBlock}
      union
      select block_number, block_hash from indexer.authorization
      where chain_id = ${chainId} and block_number between ${sinceBlock} and ${safeBlock} and batch_log_index is null
      union
      select block_number, block_hash from evidence
      where chain_id = ${chainId} and block_number between ${sinceBlock} and ${safeBlock}
    ) seen
    where not exists (
      select from confirmation c where c.chain_id = ${chainId} and c.block_hash = seen.block_hash
    )
    order by 1`
}

export async function insertConfirmation(
  sql: Queryable,
  chainId: number,
  block: UnconfirmedBlock,
  confirmedAt: Date,
): Promise<void> {
  await sql`
    insert into confirmation (chain_id, block_number, block_hash, confirmed_at)
    values (${chainId}, ${block.blockNumber}, ${block.blockHash}, ${confirmedAt})
    on conflict do nothing`
}
