import type { Queryable } from './database.ts'

/**
 * Remembers the blocks of which the index lacks something (indexer/src/Quarantine.ts), and forgets those that it has since
 * filled: what was done up to the block before the first of them is done again from there. What is written twice has keys
 * against it.
 *
 * @returns whether any was filled.
 */
export async function followIndexHoles(sql: Queryable, chainId: number): Promise<boolean> {
  const [row] = await sql<[{ isFilled: boolean }]>`
    with hole as materialized (
      select distinct block_number from indexer.quarantine
      where chain_id = ${chainId} and reason = 'receipt_unavailable'
    ), noted as (
      insert into index_hole (chain_id, block_number) select ${chainId}, block_number from hole
      on conflict do nothing
    ), filled as (
      delete from index_hole known
      where known.chain_id = ${chainId} and not exists (select from hole where hole.block_number = known.block_number)
      returning known.block_number
    ), first as (
      select min(block_number) - 1 as block from filled having count(*) > 0
    ), lowered as (
      update acted_block acted
      set swept_block = least(acted.swept_block, first.block), notified_block = least(acted.notified_block, first.block)
      from first where acted.chain_id = ${chainId}
    )
    select exists (select from first) as "isFilled"`
  return row.isFilled
}
