import type { Queryable } from './database.ts'
import type { ReliedBlock } from './evidence.ts'

/**
 * The blocks with settlements that have reached their depth at `safeBlock` and whose confirmation isn't written down.
 *
 * @param after Blocks up to here were looked at before.
 */
export async function readUnconfirmedBlocks(
  sql: Queryable,
  scope: { chainId: number },
  after: bigint,
  safeBlock: bigint,
): Promise<ReliedBlock[]> {
  const { chainId } = scope
  return sql<ReliedBlock[]>`
    select seen.block_number as "blockNumber", seen.block_hash as "blockHash"
    from (
      select block_number, block_hash from indexer.batch
      where chain_id = ${chainId} and block_number > ${after} and block_number <= ${safeBlock}
      union
      select block_number, block_hash from indexer.authorization
      where chain_id = ${chainId} and block_number > ${after} and block_number <= ${safeBlock} and batch_log_index is null
      union
      select block_number, block_hash from evidence
      where chain_id = ${chainId} and block_number > ${after} and block_number <= ${safeBlock}
    ) seen
    where not exists (
      select from confirmation c where c.chain_id = ${chainId} and c.block_number = seen.block_number::bigint and c.block_hash = seen.block_hash
    )
    order by 1`
}

export async function insertConfirmation(
  sql: Queryable,
  chainId: number,
  block: ReliedBlock,
  confirmedAt: Date,
): Promise<void> {
  await sql`
    insert into confirmation (chain_id, block_number, block_hash, confirmed_at)
    values (${chainId}, ${block.blockNumber}, ${block.blockHash}, ${confirmedAt})
    on conflict do nothing`
}
