import type { PendingQuery, Row } from 'postgres'
import type { Address, Hash } from 'viem'
import type { Database } from '#ledger/store/database'

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
  const page = (share: 'b' | 'r') => sql`
    ${txHash === undefined ? sql`` : sql`and ${sql(share)}.tx_hash = ${txHash}`}
    ${after === null ? sql`` : sql`and ${sql(share)}.sequence < ${after.sequence}`}
    order by ${sql(share)}.sequence desc
    limit ${limit}`
  if (wallet === undefined)
    return sql<BatchRow[]>`
      select ${columns(sql, false)} from indexer.batch b where b.chain_id = ${chainId} ${page('b')}`
  return sql<BatchRow[]>`
    with r as materialized (${sharesOf(sql, { chainId, wallet }, page('r'))})
    select ${columns(sql, true)}
    from r join indexer.batch b on b.chain_id = ${chainId} and b.sequence = r.sequence
    order by r.sequence desc
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

/**
 * A wallet's batches of a time, the oldest first, after the last one of the page before. The time is looked up once, as a
 * range of sequences: these rise with it, so that a page is read in the order in which the batches are stored.
 */
export async function listBatchesOfPeriod(
  sql: Database,
  { chainId, wallet, from, to }: PeriodFilter,
  { after, limit }: { after: Pick<BatchRow, 'sequence'> | null; limit: number },
): Promise<StoredBatchRow[]> {
  return sql<StoredBatchRow[]>`
    with r as materialized (${sharesOf(
      sql,
      { chainId, wallet },
      sql`
        and r.sequence > ${after?.sequence ?? -1}
        and r.sequence >= (select sequence from indexer.batch where chain_id = ${chainId} and block_time >= ${from}
          order by block_time, sequence limit 1)
        and r.sequence <= (select sequence from indexer.batch where chain_id = ${chainId} and block_time < ${to}
          order by block_time desc, sequence desc limit 1)
        order by r.sequence
        limit ${limit}`,
    )})
    select ${columns(sql, true)}, c.confirmed_at as "confirmedAt", g.usd as "gasTokenUsd"
    from r join indexer.batch b on b.chain_id = ${chainId} and b.sequence = r.sequence
    left join lateral (
      select confirmed_at from recorded_block
      where chain_id = ${chainId} and number = b.block_number::bigint and hash = b.block_hash
      limit 1 -- looked up for each, not all of them at once
    ) c on true
    left join gas_token_price g on g.chain_id = ${chainId} and g.block_hash = b.block_hash
    order by r.sequence
    limit ${limit}`
}

/**
 * What batches brought to a wallet, by themselves or through splitters that pay it a share: a query of the columns `sequence`,
 * `payment_count` and `total`.
 *
 * @param page what is looked for in `indexer.batch_recipient r`, in which order, and how much: of each that is paid, and of
 * the sums again by whoever asks. So a batch among the first has all of its rows.
 */
function sharesOf(
  sql: Database,
  { chainId, wallet }: { chainId: number; wallet: Address },
  page: PendingQuery<Row[]>,
) {
  return sql`
    select r.sequence, sum(r.payment_count)::int as payment_count, sum(div(r.total * paid.part, paid.whole)) as total
    from (
      select ${wallet}::text as address, 1 as part, 1 as whole
      union all
      select address, provider_share, provider_share + platform_share from splitter
        where chain_id = ${chainId} and provider = ${wallet}
      union all
      select address, platform_share, provider_share + platform_share from splitter
        where chain_id = ${chainId} and platform = ${wallet}
    ) paid
    cross join lateral (
      select r.sequence, r.payment_count, r.total from indexer.batch_recipient r
      where r.chain_id = ${chainId} and r.recipient = paid.address ${page}
    ) r
    group by r.sequence`
}

/** What the transaction of the batch `b` cost, in wei, L1 fee included. */
export function gasCostOfBatch(sql: Database) {
  return sql`(b.gas_used * b.effective_gas_price + coalesce(b.l1_fee, 0))`
}

/** Of the batch `b`; its count and sum of all provider wallets, or those of one wallet's share `r` in it. */
function columns(sql: Database, ofShare: boolean) {
  return sql`b.sequence, ${ofShare ? sql`r` : sql`b`}.payment_count as "paymentCount",
    ${ofShare ? sql`r.total` : sql`b.provider_total`} as total,
    ${gasCostOfBatch(sql)} as "gasCost", b.tx_hash as "txHash",
    b.trigger as "triggerCode", b.block_number as "blockNumber", b.block_hash as "blockHash",
    b.block_time as "blockTime"`
}
