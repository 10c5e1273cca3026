import type { Address, Hash } from 'viem'
import type { Database } from '#ledger/database'

export type BatchFilter = {
  chainId: number
  /** Only batches that paid this wallet, with its own count and sum. */
  wallet: Address | undefined
  txHash: string | undefined
}

/** One BatchSettled, as far as it concerns the wallet asked for. */
export type BatchRow = {
  sequence: number
  paymentCount: number
  /** USDC base units. */
  total: bigint
  /** Wei, of the whole transaction, L1 fee included. */
  gasCost: bigint
  txHash: Hash
  triggerCode: number
  blockNumber: bigint
  blockHash: Hash
  /** Unix seconds. */
  blockTime: bigint
}

/** The newest first. */
export async function listBatches(
  sql: Database,
  { chainId, wallet, txHash }: BatchFilter,
  { after, limit }: { after: { sequence: number } | null; limit: number },
): Promise<BatchRow[]> {
  const share = wallet === undefined ? sql`b` : sql`r`
  return sql<BatchRow[]>`
    select ${columns(sql, wallet !== undefined)}
    from indexer.batch b
    ${
      wallet === undefined
        ? sql``
        : sql`join indexer.batch_recipient r
            on r.chain_id = b.chain_id and r.tx_hash = b.tx_hash and r.log_index = b.log_index and r.recipient = ${wallet}`
    }
    where ${share}.chain_id = ${chainId}
      ${txHash === undefined ? sql`` : sql`and b.tx_hash = ${txHash}`}
      ${after === null ? sql`` : sql`and ${share}.sequence < ${after.sequence}`}
    order by ${share}.sequence desc
    limit ${limit}`
}

export type PeriodFilter = {
  chainId: number
  wallet: Address
  /** Unix seconds: mined at or after, and before. */
  from: number
  to: number
}

/** A batch with what was stored of its block: null where that isn't known yet. */
export type StoredBatchRow = BatchRow & { confirmedAt: Date | null; gasTokenUsd: bigint | null }

/** A wallet's batches of a time, the oldest first, after the last one of the page before. */
export async function listBatchesOfPeriod(
  sql: Database,
  { chainId, wallet, from, to }: PeriodFilter,
  { after, limit }: { after: Pick<BatchRow, 'blockTime' | 'sequence'> | null; limit: number },
): Promise<StoredBatchRow[]> {
  // Joined by sequence, not by hash: batches of one time stand side by side in that index.
  return sql<StoredBatchRow[]>`
    with r as materialized (
      select sequence, payment_count, total, block_time from indexer.batch_recipient
      where chain_id = ${chainId} and recipient = ${wallet} and block_time >= ${from} and block_time < ${to}
        ${after === null ? sql`` : sql`and (block_time, sequence) > (${after.blockTime}, ${after.sequence})`}
      order by block_time, sequence
      limit ${limit}
    )
    select ${columns(sql, true)}, c.confirmed_at as "confirmedAt", g.usd as "gasTokenUsd"
    from r join indexer.batch b on b.chain_id = ${chainId} and b.sequence = r.sequence
    left join confirmation c on c.chain_id = ${chainId} and c.block_hash = b.block_hash
    left join gas_token_price g on g.chain_id = ${chainId} and g.block_hash = b.block_hash
    order by r.block_time, r.sequence`
}

/** Of the batch `b`; its count and sum of all provider wallets, or those of one wallet's share `r` in it. */
function columns(sql: Database, ofShare: boolean) {
  return sql`b.sequence, ${ofShare ? sql`r` : sql`b`}.payment_count as "paymentCount",
    ${ofShare ? sql`r.total` : sql`b.provider_total`} as total,
    b.gas_used * b.effective_gas_price + coalesce(b.l1_fee, 0) as "gasCost", b.tx_hash as "txHash",
    b.trigger as "triggerCode", b.block_number as "blockNumber", b.block_hash as "blockHash",
    b.block_time as "blockTime"`
}
