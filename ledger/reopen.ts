import type { Queryable } from './database.ts'
import type { ReliedBlock } from './evidence.ts'

/** The newest blocks between two heights that settlements were confirmed in, the newest first. */
export async function readConfirmedBlocks(
  sql: Queryable,
  chainId: number,
  { above, below, limit }: { above?: bigint; below?: bigint | undefined; limit: number },
): Promise<ReliedBlock[]> {
  return sql<ReliedBlock[]>`
    select block_number as "blockNumber", block_hash as "blockHash" from confirmation
    where chain_id = ${chainId} and block_number > ${above ?? -1n}
      and (${below ?? null}::bigint is null or block_number < ${below ?? null})
    order by block_number desc limit ${limit}`
}

/** Whether the index still shows something of a block that is gone: it hasn't followed the reorg yet. */
export async function isStillIndexed(
  sql: Queryable,
  chainId: number,
  { blockNumber, blockHash }: ReliedBlock,
): Promise<boolean> {
  const [row] = await sql<{ isIndexed: boolean }[]>`
    select exists (
      select from indexer.authorization
      where chain_id = ${chainId} and block_number = ${blockNumber} and block_hash = ${blockHash}
    ) as "isIndexed"`
  return row?.isIndexed ?? false
}

/**
 * Takes back what was concluded on the word of blocks that are gone, after a reorg that was deeper than anything we wait
 * for. Nothing is settled, failed or told here: all of it is looked at again, as if it were new.
 *
 * @param fork The highest block known to stand.
 * @returns how many payments aren't concluded any more.
 */
export async function undoConclusions(
  sql: Queryable,
  chainId: number,
  fork: bigint,
  gone: readonly ReliedBlock[],
): Promise<number> {
  // What failed for what those blocks showed has not failed at all.
  const isExcused = sql`failure_code in ('authorization_cancelled', 'authorization_used')`
  const undone = await sql`
    update payment set concluded_at = null,
      failed_at = case when ${isExcused} then null else failed_at end,
      failure_code = case when ${isExcused} then null else failure_code end,
      attempts = case when ${isExcused} then 0 else attempts end,
      first_failed_at = case when ${isExcused} then null else first_failed_at end
    where chain_id = ${chainId} and spent_block > ${fork} and voided_at is null
      and (concluded_at is not null or failed_at is not null)
    returning id`
  await sql`update evidence set is_final = false where chain_id = ${chainId} and block_number > ${fork} and is_final`
  await sql`
    delete from confirmation
    where chain_id = ${chainId} and block_number > ${fork} and block_hash = any(${gone.map(({ blockHash }) => blockHash)}::text[])`
  await sql`
    update acted_block set block_number = least(block_number, ${fork}), swept_block = least(swept_block, ${fork}),
      notified_block = least(notified_block, ${fork})
    where chain_id = ${chainId}`
  return undone.length
}
