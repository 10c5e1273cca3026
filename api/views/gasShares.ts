import type { Database } from '@tollkeeper/ledger/store/database'
import { paidAddresses } from './batchQueries.ts'
import type { BlockRow } from './blockFacts.ts'

/** A provider's share of the cost of a block's batches, in proportion to the provider's number of payments. */
export type GasShare = Omit<BlockRow, 'confirmedAt'> & {
  chainId: number
  /** Whether this gateway's keepers sent the transactions. */
  isOurs: boolean
  batches: number
  /** Wei, L1 fee included, rounded up. */
  cost: bigint
}

/** Finds the gas of the batches mined in [from, to) that paid a provider's wallets or their splitters. */
export async function findGasShares(
  sql: Database,
  { providerId, from, to }: { providerId: string; from: Date; to: Date },
): Promise<GasShare[]> {
  const seconds = (time: Date) => time.getTime() / 1000
  return sql<GasShare[]>`
    with paid as (
      select r.batch_id, sum(r.payment_count) as payments
      from (${paidAddresses(sql, { providerId })}) own
      join batch_recipient r on r.chain_id = own.chain_id and r.recipient = own.address
      where r.block_time >= ${seconds(from)} and r.block_time < ${seconds(to)}
      group by 1
    )
    select b.chain_id as "chainId", k.number as "blockNumber", k.hash as "blockHash", g.usd as "gasTokenUsd",
      t.hash is not null as "isOurs", count(*)::int as batches,
      sum(ceil(b.gas_cost * paid.payments / greatest(b.payment_count, paid.payments))) as cost
    from paid join settled_batch b on b.id = paid.batch_id
    join recorded_block k on k.id = b.block_id
    left join gas_token_price g on g.chain_id = b.chain_id and g.block_hash = k.hash
    left join transaction t on t.hash = b.tx_hash
    group by 1, 2, 3, 4, 5`
}
