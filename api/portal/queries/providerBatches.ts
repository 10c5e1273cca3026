import type { Database } from '#ledger/store/database'
import { type BatchRow, gasCostOfBatch } from './batches.ts'

/** A batch as it concerns one provider: its own count and sum, in all its wallets on that chain. */
export type ProviderBatch = BatchRow & {
  chainId: number
  /** Everybody's payments in it. */
  batchPaymentCount: number
  gasUsed: bigint
}

/** Where a page ended: newest first, whatever the chain. Times in Unix seconds. */
export type BatchPosition = { blockTime: number; sequence: number; chainId: number }

export type ProviderBatchQuery = {
  providerId: string
  chainId?: number | undefined
  after: BatchPosition | null
  limit: number
}

/** The batches that paid a provider, or a splitter its part of what that received; newest first. */
export async function findProviderBatches(
  sql: Database,
  { providerId, chainId, after, limit }: ProviderBatchQuery,
): Promise<ProviderBatch[]> {
  // Each wallet's newest ones by its index, and of these the newest: any batch among them has all of its wallets' rows.
  return sql<ProviderBatch[]>`
    with own_wallet as (
      select chain_id, address from wallet
      where provider_id = ${providerId} ${chainId === undefined ? sql`` : sql`and chain_id = ${chainId}`}
    ), paid as (
      select r.chain_id, r.tx_hash, r.log_index, r.payment_count, div(r.total * w.part, w.whole) as total
      from (
        select chain_id, address, 1 as part, 1 as whole from own_wallet
        union all
        select s.chain_id, s.address, s.provider_share, s.provider_share + s.platform_share
        from own_wallet o join splitter s on s.chain_id = o.chain_id and s.provider = o.address
      ) w
      cross join lateral (
        select r.chain_id, r.tx_hash, r.log_index, r.payment_count, r.total from indexer.batch_recipient r
        where r.chain_id = w.chain_id and r.recipient = w.address
          ${
            after === null
              ? sql``
              : sql`and (r.block_time, r.sequence, r.chain_id)
                < (${after.blockTime}, ${after.sequence}, ${after.chainId})`
          }
        order by r.block_time desc, r.sequence desc
        limit ${limit}
      ) r
    ), own as (
      select chain_id, tx_hash, log_index, sum(payment_count)::int as payment_count, sum(total) as total
      from paid group by chain_id, tx_hash, log_index
    )
    select b.chain_id as "chainId", b.sequence, own.payment_count as "paymentCount", own.total,
      b.payment_count as "batchPaymentCount", b.gas_used as "gasUsed",
      ${gasCostOfBatch(sql)} as "gasCost", b.tx_hash as "txHash",
      b.trigger as "triggerCode", b.block_number as "blockNumber", b.block_hash as "blockHash",
      b.block_time as "blockTime"
    from own join indexer.batch b
      on b.chain_id = own.chain_id and b.tx_hash = own.tx_hash and b.log_index = own.log_index
    order by b.block_time desc, b.sequence desc, b.chain_id desc
    limit ${limit}`
}
