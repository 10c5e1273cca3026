import type { Hash } from 'viem'
import type { Database } from '#ledger/store/database'
import { gasCostOfBatch } from './batches.ts'

/** What settling a provider's payments cost in one block, as its share of the batches by the number of payments. */
export type GasShare = {
  chainId: number
  blockNumber: bigint
  blockHash: Hash
  /** Whether the keepers of this gateway sent the transactions, or somebody else's. */
  isOurs: boolean
  batches: number
  /** Wei, L1 fee included, rounded up. */
  cost: bigint
}

/** The gas of the batches mined in [from, to) that paid a provider's wallets or their splitters. */
export async function findGasShares(
  sql: Database,
  { providerId, from, to }: { providerId: string; from: Date; to: Date },
): Promise<GasShare[]> {
  const seconds = (time: Date) => time.getTime() / 1000
  return sql<GasShare[]>`
    with own_wallet as (
      select distinct chain_id, address from wallet where provider_id = ${providerId}
    ), paid as (
      select r.chain_id, r.tx_hash, r.log_index, sum(r.payment_count) as payments
      from (
        select chain_id, address from own_wallet
        union
        select s.chain_id, s.address from own_wallet o join splitter s on s.chain_id = o.chain_id and s.provider = o.address
      ) w
      join indexer.batch_recipient r on r.chain_id = w.chain_id and r.recipient = w.address
      where r.block_time >= ${seconds(from)} and r.block_time < ${seconds(to)}
      group by 1, 2, 3
    )
    select b.chain_id as "chainId", b.block_number as "blockNumber", b.block_hash as "blockHash",
      t.hash is not null as "isOurs", count(*)::int as batches,
      sum(ceil(${gasCostOfBatch(sql)} * paid.payments
        / greatest(b.payment_count, paid.payments))) as cost
    from paid
    join indexer.batch b on b.chain_id = paid.chain_id and b.tx_hash = paid.tx_hash and b.log_index = paid.log_index
    left join transaction t on t.hash = b.tx_hash
    group by 1, 2, 3, 4`
}
